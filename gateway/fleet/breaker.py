"""One member's circuit breaker: closed, open for a while, half open for a trial.

It counts failures in a row, nothing else; which failures count is the caller's judgement. The time it
stays open doubles while trials fail, up to a limit, and starts small again after a success. Pure: time
and jitter are arguments. Callers: `gateway.fleet.health`, and whoever guards a dependency likewise.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf

JITTER = 0.2
"""A breaker stays open up to this share longer, so that many of them do not try at the same moment."""


class Position(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Times in seconds on a monotonic clock; `jitter` is drawn evenly from [0, 1)."""

    __slots__ = ("_next_s", "after", "failures", "max_s", "open_s", "position", "until")

    def __init__(self, after: int, open_s: float, max_s: float) -> None:
        self.after = after
        """Failures in a row that open it."""
        self.open_s = open_s
        self.max_s = max_s
        self.position = Position.CLOSED
        self.failures = 0
        self.until = inf
        """When an open breaker may be tried; infinite when it is not open."""
        self._next_s = open_s

    def ok(self) -> bool:
        """A success. True if it closed the breaker.

        An open one stays open: the request may be older than the failures that opened it.
        """
        if self.position is Position.OPEN:
            return False
        self.failures = 0
        self._next_s = self.open_s
        return self.close()

    def close(self) -> bool:
        """Close without a success: if it opens again soon, then for longer. True if it closed."""
        if self.position is Position.CLOSED:
            return False
        self.position = Position.CLOSED
        self.failures = 0
        self.until = inf
        return True

    def failed(self, now: float, jitter: float) -> bool:
        """A failure. True if it opened the breaker: the last of many in a row, or one in a trial."""
        if self.position is Position.OPEN:
            return False  # a request that was sent before it opened
        self.failures += 1
        if self.position is Position.CLOSED and self.failures < self.after:
            return False
        self.trip(now, jitter)
        return True

    def trip(self, now: float, jitter: float) -> None:
        """Open it whatever was counted."""
        self.position = Position.OPEN
        self.until = now + min(self._next_s, self.max_s) * (1 + JITTER * jitter)
        self._next_s = min(self._next_s * 2, self.max_s)

    def cool(self, now: float) -> bool:
        """True if it became half open just now."""
        if self.position is not Position.OPEN or now < self.until:
            return False
        self.position = Position.HALF_OPEN
        self.until = inf
        return True

    def __repr__(self) -> str:
        return f"<Breaker {self.position.value} failures={self.failures}/{self.after} until={self.until:.3f}>"
