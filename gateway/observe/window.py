"""The last 60 seconds: requests a second and latency quantiles, right over all workers.

A ring of time slots in a worker's shared cells; each slot is a row: its number (from CLOCK_MONOTONIC,
which all processes of a machine share), a count for each latency bucket, and the refused requests, which
have no latency. Buckets are 10 % apart, so that a quantile is at most 5 % off from 100 µs to an hour.
Reading adds the rows of all workers that are not older than the window. Pure; time is an argument.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FINEST_S, LONGEST_S, RATIO = 100e-6, 3600.0, 1.1

EDGES: tuple[float, ...] = tuple(
    FINEST_S * RATIO**power for power in range(math.ceil(math.log(LONGEST_S / FINEST_S, RATIO)) + 1)
)
"""Upper edges of the buckets; one more bucket holds what is longer."""

REFUSED = len(EDGES) + 1
"""The place of refused requests among the buckets."""

ROW = 1 + REFUSED + 1
"""Cells of a row: the slot's number plus one (0: never used), the buckets, the refused."""


def bucket(seconds: float) -> int:
    return bisect_left(EDGES, seconds)


SLOTS, SLOT_S = 60, 1.0

CELLS = SLOTS * ROW
"""Cells of a ring."""


class WindowWriter:
    """Counts into one worker's ring: `values[start:start + CELLS]` is its alone.

    The hot path adds to `values[base + place]` itself, after `turn` if `now` has reached `until`.
    """

    __slots__ = ("_start", "_values", "base", "until")

    def __init__(self, values: memoryview[float], start: int) -> None:
        self._values = values
        self._start = start
        self.base = start + 1
        self.until = -math.inf

    def add(self, now: float, place: int) -> None:
        """Count a request that ended at `now`; `place` is its bucket or `REFUSED`."""
        if now >= self.until:
            self.turn(now)
        self._values[self.base + place] += 1.0

    def turn(self, now: float) -> None:
        """Make the slot of this time the one that is counted in, emptied of what it held a minute ago."""
        number = int(now // SLOT_S)
        row = self._start + (number % SLOTS) * ROW
        if self._values[row] != number + 1:
            # Void while it is emptied: a reader must not take old counts for new ones.
            self._values[row] = 0.0
            self._values[row + 1 : row + ROW] = memoryview(array("d", bytes((ROW - 1) * 8)))
            self._values[row] = number + 1
        self.base = row + 1
        self.until = (number + 1) * SLOT_S


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened in the window."""

    seconds: float
    """How much of the window has been observed; at least 1."""
    counts: tuple[float, ...]
    """Requests by bucket."""
    refused: float = 0.0

    @property
    def qps(self) -> float:
        """Requests that ended, refused ones included, per second."""
        return (sum(self.counts) + self.refused) / self.seconds

    def quantile(self, share: float) -> float:
        """Latency in seconds that this share of the requests did not exceed; NaN if there were none."""
        total = sum(self.counts)
        if not total:
            return math.nan
        rank, seen = max(1.0, math.ceil(share * total)), 0.0
        for place, count in enumerate(self.counts):
            seen += count
            if seen >= rank:
                return _middle(place)
        return EDGES[-1]


def _middle(place: int) -> float:
    """The value that is equally far, as a ratio, from both edges of a bucket."""
    return EDGES[min(place, len(EDGES) - 1)] / math.sqrt(RATIO)


def figures(rings: Iterable[Sequence[float]], *, now: float, since: float) -> Figures:
    """Add up rings (all workers', all routes'). `since`: when counting began, on the same clock as `now`."""
    oldest = int(now // SLOT_S) - SLOTS + 1
    rows = [
        ring[start + 1 : start + ROW]
        for ring in rings
        for start in range(0, CELLS, ROW)
        if ring[start] > oldest
    ]
    totals: list[float] = list(map(sum, zip(*rows, strict=True)))
    if not totals:
        return Figures(seconds=1.0, counts=(0.0,) * (ROW - 2))
    observed = min(now - oldest * SLOT_S, now - since)
    return Figures(seconds=max(1.0, observed), counts=tuple(totals[:-1]), refused=totals[-1])
