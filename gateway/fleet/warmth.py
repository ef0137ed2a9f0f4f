"""How a fresh member comes to its share: a few requests first, and twice as many each time they go well.

An engine that has just started, or has just taken other weights, is slow with its first requests. It begins
with `FIRST` at a time, may have twice as many when that many were answered or `STEP_S` have passed, and has
its ordinary limit above `ENOUGH`: so its first requests hurt few, and it is back within seconds whatever the
traffic. As TCP's slow start (RFC 5681, 3.1). Pure. Caller: `gateway.fleet.health`.
"""

from __future__ import annotations

from math import inf

FIRST = 1
ENOUGH = 64
"""An engine that has computed so many at a time is warm."""

STEP_S = 1.0
"""Answers may be long: after this time it is warmer without having ended one."""


class Warmth:
    """One member's. Times in seconds on a monotonic clock."""

    __slots__ = ("_answered", "allowed", "until")

    def __init__(self) -> None:
        self.allowed = 0
        """Requests at a time; 0: no more limited than others."""
        self.until = inf
        """When `tick` will have something to do."""
        self._answered = 0

    def __repr__(self) -> str:
        return f"<Warmth {self.allowed or 'warm'}>"

    def start(self, now: float) -> None:
        """It is fresh."""
        self.allowed = FIRST
        self._answered = 0
        self.until = now + STEP_S

    def stop(self) -> None:
        """It need not be spared, or cannot be."""
        self.allowed = 0
        self.until = inf

    def answered(self, now: float) -> bool:
        """A request was answered well. True if it may have more now."""
        if not self.allowed:
            return False
        self._answered += 1
        return self._answered >= self.allowed and self._grow(now)

    def tick(self, now: float) -> bool:
        """Let time pass. True if it may have more now."""
        return now >= self.until and self._grow(now)

    def _grow(self, now: float) -> bool:
        self.allowed *= 2
        self._answered = 0
        self.until = now + STEP_S
        if self.allowed > ENOUGH:
            self.stop()
        return True
