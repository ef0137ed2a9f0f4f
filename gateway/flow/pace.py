"""How long requests hold their place, and how long the queue may be: the two measurements of admission.

Pure, fed by `gateway.flow.admission` alone.
"""

from __future__ import annotations

from math import exp, inf

FOLD_S = 0.25
"""Between two foldings of what was measured into the mean: the rest of the time it is two additions."""

MEMORY_S = 5.0
"""The mean forgets over this time, or over the duration of a request where that is longer."""


class ServiceTime:
    """Moving mean of the time between admission and leaving; 0 until a request has left.

    With `slots` requests at a time, one leaves every `mean_s / slots` (Little's law).
    """

    __slots__ = ("_count", "_fold_at", "_off_s", "_since", "_sum_s", "mean_s", "spread_s")

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.spread_s = 0.0
        """How far from the mean a request is on average."""
        self._sum_s = 0.0
        self._off_s = 0.0
        self._count = 0
        self._since = -inf
        self._fold_at = -inf

    def add(self, seconds: float, now: float) -> None:
        self._sum_s += seconds
        self._off_s += abs(seconds - self.mean_s)
        self._count += 1
        if now >= self._fold_at:
            self._fold(now)

    def _fold(self, now: float) -> None:
        first = self._since == -inf
        fresh = 1 - exp((self._since - now) / max(MEMORY_S, self.mean_s))
        self.mean_s += fresh * (self._sum_s / self._count - self.mean_s)
        if not first:  # the first has nothing to be far from
            self.spread_s += fresh * (self._off_s / self._count - self.spread_s)
        self._sum_s = 0.0
        self._off_s = 0.0
        self._count = 0
        self._since = now
        self._fold_at = now + FOLD_S


ENDURED_S = 5.0
"""Overload that lasts less is a burst: the queue is there for it."""

CALM_S = 5.0
"""Overload is over when nobody was lost for so long."""

SETTLED_S = 2.0
"""How long a wait is allowed while overload lasts. Twice this is how long the queue takes to empty when
the load falls to half the capacity."""

LOST_SHARE = 0.05
"""Overload means that at least this share is lost: a few clients that leave the queue are not that."""


class Patience:
    """How long a request may be made to wait: as configured, much less once overload lasts.

    A queue absorbs bursts. When refusals go on for seconds, more requests come than can ever be served:
    then a long queue serves no one more, it only makes everybody wait, until clients leave just before
    their turn and the work done for them is lost (the standing queue of CoDel, RFC 8289).
    """

    __slots__ = ("_last", "_lost", "_served", "_since")

    def __init__(self) -> None:
        self._since = -inf
        self._last = -inf
        self._lost = 0
        self._served = 0

    def lost(self, now: float) -> None:
        """A request was refused, or left the queue."""
        if now - self._last > CALM_S:
            self._since = now
            self._lost = 0
            self._served = 0
        self._last = now
        self._lost += 1

    def served(self) -> None:
        """A request was admitted from the queue."""
        self._served += 1

    def longest_s(self, now: float, configured_s: float) -> float:
        if now - self._last > CALM_S or now - self._since < ENDURED_S:
            return configured_s
        if self._lost < LOST_SHARE * self._served:
            return configured_s
        return min(configured_s, SETTLED_S)
