"""The time limits of a request that is under way: which of them has passed, and whose fault that is.

Pure: times in seconds of one monotonic clock, the present time is an argument. Asked by `flow.call` some
times a second, never for each request.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.fleet.evidence import Kind
from gateway.flow.phase import ANSWERING, CONNECTING, WAITING, Phase
from gateway.flow.record import Record
from gateway.settings.tree import Timeouts


class Overdue(NamedTuple):
    """A limit that has passed."""

    sentence: str
    """For the client."""
    kind: Kind
    """What it says about the member."""


def past_deadline(phase: Phase, own_limit: bool) -> Overdue:
    """The whole answer should have been sent by now. `own_limit`: the client set it, not we."""
    # An answer that flows is no fault of the backend's, however long it gets.
    ours = phase in (CONNECTING, WAITING) and not own_limit
    kind = Kind.FIRST_BYTE if ours else Kind.CLIENT_DEADLINE
    return Overdue("The request took longer than its limit.", kind)


def silent(phase: Phase, record: Record, stream: bool, limits: Timeouts, now: float) -> Overdue | None:
    """Whether the member has said nothing for too long."""
    if phase is ANSWERING:
        if now - max(record.last, record.answered) > limits.silence_s:
            return Overdue(f"The backend sent nothing for {limits.silence_s:g} s.", Kind.SILENCE)
    elif phase is WAITING and stream and now - record.sent > limits.first_byte_s:
        return Overdue(f"The backend sent nothing within {limits.first_byte_s:g} s.", Kind.FIRST_BYTE)
    return None
