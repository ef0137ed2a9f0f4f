"""What goes wrong with a fake agent's swaps, as data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from backends.contract import Phase

Seconds = Annotated[float, msgspec.Meta(ge=0)]


class How(StrEnum):
    FAILS = "fails"
    """The phase ends with an error."""
    HANGS = "hangs"
    """The phase does not end by itself: the agent gives it up after `hang_s`."""
    DIES = "dies"
    """The engine is killed: its connections are reset, and it comes back on what should be served."""
    AGENT_DIES = "agent_dies"
    """The agent is killed, and its engine with it: both come back, and know nothing of the swap."""
    LIES = "lies"
    """The phase says that it succeeded and has done nothing (`loading`: the old weights answer on)."""


class Trouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault. `version`: only in swaps to this one; `first`: only so many times."""

    phase: Phase
    how: How
    version: int | None = None
    first: int | None = 1


class Manner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a fake agent behaves."""

    troubles: tuple[Trouble, ...] = ()
    phase_s: Seconds = 0.0
    """Time that each phase takes."""
    restart_s: Seconds = 0.0
    """Time that an engine needs to start."""
    hang_s: Seconds = 0.1
    """Time after which a phase that hangs is given up."""


class Troubles:
    """The faults that are still to happen."""

    def __init__(self, troubles: tuple[Trouble, ...]) -> None:
        self._troubles = troubles
        self._used = [0] * len(troubles)

    def strike(self, phase: Phase, version: int) -> How | None:
        """What goes wrong now, and counts as having happened."""
        for index, trouble in enumerate(self._troubles):
            if trouble.phase is not phase or trouble.version not in (None, version):
                continue
            if trouble.first is not None and self._used[index] >= trouble.first:
                continue
            self._used[index] += 1
            return trouble.how
        return None
