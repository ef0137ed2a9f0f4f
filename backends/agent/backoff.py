"""How long to wait before an engine that died is started again, and when to give up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FIRST_S = 1.0
LONGEST_S = 60.0
MAX_DOUBLINGS = 16
"""Past LONGEST_S for certain, and far from what a float can hold."""
WELL_AFTER_S = 60.0
"""An engine that was ready this long has recovered: its next death counts as the first."""
MAX_FAILED_STARTS = 3
"""Starts in a row that end before the engine was ever ready; more would not help."""


@dataclass(frozen=True, slots=True)
class History:
    """What has happened to an engine so far."""

    deaths: int = 0
    """In a row, since it was last well."""
    was_ready: bool = False
    """Whether these settings have ever worked."""

    def after_death(self, ready_for_s: float | None) -> History:
        """`ready_for_s`: how long it had been ready; None if it never was in that run."""
        if ready_for_s is None:
            return History(self.deaths + 1, self.was_ready)
        return History(1 if ready_for_s >= WELL_AFTER_S else self.deaths + 1, True)


def gives_up(history: History, *, permanent: bool) -> bool:
    """Whether starting again is pointless. An engine that has worked before is always started again."""
    return not history.was_ready and (permanent or history.deaths >= MAX_FAILED_STARTS)


def delay_s(history: History, random: Random) -> float:
    """Doubles with each death up to LONGEST_S; jitter keeps engines that died together apart."""
    doublings = min(MAX_DOUBLINGS, max(0, history.deaths - 1))
    ceiling = min(LONGEST_S, FIRST_S * 2.0**doublings)
    return ceiling * random.uniform(0.5, 1.0)
