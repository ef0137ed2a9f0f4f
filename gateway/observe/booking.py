"""Counting many requests at once: what is added to a histogram's cells, and what of a record is counted.

Requests that end are put into a list and counted some times a second: one append is all that each costs on
its way, and counting a hundred sorted numbers takes little longer than counting one. Pure but for the cells.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Protocol

FEW = 8
"""Numbers up to which each is looked up by itself."""


class Ended(Protocol):
    """What is counted of a request that has ended. Seconds of one monotonic clock; 0: did not happen."""

    started: float
    admitted: float
    first: float
    ended: float
    outcome: Any
    """An `Outcome`."""
    version: str
    computed: bool
    prompt_tokens: int
    completion_tokens: int

    def overhead_s(self) -> float:
        """Time in the gateway itself: neither waiting to be admitted nor with the engine."""


def observe(values: memoryview[float], index: int, edges: Sequence[float], numbers: list[float]) -> None:
    """Add numbers to a histogram: buckets from `index` on, the sum behind them. Sorts `numbers`."""
    if not numbers:
        return
    values[index + len(edges) + 1] += sum(numbers)
    if len(numbers) <= FEW:
        for number in numbers:
            values[index + bisect_left(edges, number)] += 1.0
        return
    numbers.sort()
    counted, count = 0, len(numbers)
    place = bisect_left(edges, numbers[0])
    while counted < count:
        below = bisect_right(numbers, edges[place], counted) if place < len(edges) else count
        if below > counted:
            values[index + place] += below - counted
            counted = below
        place += 1
