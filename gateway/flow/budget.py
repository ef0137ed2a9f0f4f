"""How many retries are worth it: a share of the requests, plus a few a second.

When everything fails, every request would be tried again, and an overload be made worse by it. The
budget is what accumulates over about `MEMORY_S` and is forgotten at the same pace, so a member that dies
with many requests on it is paid for at once, but not for ever (as in Finagle's RetryBudget). Pure.
"""

from __future__ import annotations

from math import exp

MEMORY_S = 10.0


class RetryBudget:
    """Of one model. `request` is one addition; all the rest is done when a retry is asked for."""

    __slots__ = ("_balance", "_counted_at", "_requests", "min_per_s", "ratio")

    def __init__(self, ratio: float, min_per_s: float, now: float) -> None:
        self.ratio = ratio
        self.min_per_s = min_per_s
        self._requests = 0
        self._counted_at = now
        self._balance = min_per_s * MEMORY_S

    def request(self) -> None:
        """A request came (not a retry)."""
        self._requests += 1

    def withdraw(self, now: float) -> bool:
        """Take one retry. False: the budget is spent, the request fails as it is."""
        self._settle(now)
        if self._balance < 1:
            return False
        self._balance -= 1
        return True

    def balance(self, now: float) -> float:
        """Retries that are left."""
        self._settle(now)
        return self._balance

    def _settle(self, now: float) -> None:
        """Bring the balance up to now: what was there fades, what came since fades for half the time."""
        elapsed_s = now - self._counted_at
        if elapsed_s <= 0:
            self._balance += self.ratio * self._requests
        else:
            kept = exp(-elapsed_s / MEMORY_S)
            earned = self.ratio * self._requests + self.min_per_s * elapsed_s
            self._balance = self._balance * kept + earned * (1 - kept) * MEMORY_S / elapsed_s
            self._counted_at = now
        self._requests = 0

    def __repr__(self) -> str:
        return f"<RetryBudget {self._balance:.1f} + {self.ratio:g} of {self._requests}>"
