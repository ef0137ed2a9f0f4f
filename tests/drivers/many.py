"""Many clients, a bounded number at a time, and what became of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Outcomes(Generic[T]):
    """By client number."""

    results: dict[int, T] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)

    def all(self) -> list[T]:
        """The results in the clients' order. Raises the failures as a group, if there are any."""
        if self.failures:
            raise ExceptionGroup(f"{len(self.failures)} clients failed", list(self.failures.values()))
        return [self.results[number] for number in sorted(self.results)]

    def counts(self, by: Callable[[T], object]) -> Counter[object]:
        """How many had each outcome; failures count by their type."""
        counted: Counter[object] = Counter(by(result) for result in self.results.values())
        counted.update(type(failure).__name__ for failure in self.failures.values())
        return counted


async def many(count: int, client: Callable[[int], Awaitable[T]], *, at_a_time: int = 64) -> Outcomes[T]:
    """Run clients 0 to `count` - 1, never more than `at_a_time`. Their exceptions are outcomes."""
    outcomes: Outcomes[T] = Outcomes()
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            try:
                outcomes.results[number] = await client(number)
            except Exception as failure:
                outcomes.failures[number] = failure

    async with asyncio.TaskGroup() as group:
        for number in range(min(count, at_a_time)):
            group.create_task(work(), name=f"clients {number}")
    return outcomes
