"""Why an engine is out of rotation: several reasons may hold at once, and it serves when none does. Pure."""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum


class Why(StrEnum):
    """In the words of `x-changeover-elsewhere`, the gravest first."""

    UNPROVED = "uncertain"
    """It was started and has not shown yet that it computes what it should."""
    SWAP = "swapping"
    ASKED = "draining"
    """An operator or a gateway wants it out."""


def guard_state(outside: Set[Why]) -> dict[str, object]:
    """What the guard is told."""
    return {"draining": bool(outside), "reason": reason(outside) or Why.ASKED.value}


def reason(outside: Set[Why]) -> str:
    """The gravest reason; empty in rotation."""
    return next((why.value for why in Why if why in outside), "")
