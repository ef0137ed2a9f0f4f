"""What can be held against a member, and what a verdict on it looks like.

The words in which `gateway.fleet.health` is told what happened and says what it concluded. The values
are labels in metrics and logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.fleet.states import Event, State


class Kind(StrEnum):
    """What went wrong with a request or a probe, and whose fault it was."""

    REFUSED = "refused"
    """Nobody listens: refused, no such socket or host, unreachable."""
    RESET = "reset"
    """The connection died before the answer was whole."""
    BAD_STATUS = "bad_status"
    """502, 503, 504 or the like."""
    ERROR_STATUS = "error_status"
    """500. One poisoned request can cause it; so can a broken engine, which fails fast and attracts load."""
    FIRST_BYTE = "first_byte"
    """No byte within our own limit (for a probe: no answer in time)."""
    SILENCE = "silence"
    """No byte for too long in mid-answer."""
    TRUNCATED = "truncated"
    """An orderly end before the answer was whole."""
    MALFORMED = "malformed"
    """Not HTTP, or not what the engine promises."""

    CLIENT_ERROR = "client_error"
    """Any 4xx."""
    CLIENT_GONE = "client_gone"
    CLIENT_DEADLINE = "client_deadline"
    """The client's own limit, shorter than ours, passed."""
    ELSEWHERE = "elsewhere"
    """503 marked `x-changeover-elsewhere`: it leaves, it is not broken."""

    @property
    def counts(self) -> bool:
        """Whether it speaks against the member."""
        return self in OWN_FAULTS


OWN_FAULTS: frozenset[Kind] = frozenset(
    {
        Kind.REFUSED,
        Kind.RESET,
        Kind.BAD_STATUS,
        Kind.ERROR_STATUS,
        Kind.FIRST_BYTE,
        Kind.SILENCE,
        Kind.TRUNCATED,
        Kind.MALFORMED,
    }
)


class Cause(StrEnum):
    """What ejected a member."""

    PROBES = "probes"
    TRAFFIC = "traffic"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state, to be logged and counted."""

    at: float
    before: State
    event: Event
    after: State
    reason: str
