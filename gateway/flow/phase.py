"""Where a call stands, and what each fault of a connection means for it. Pure data.

The members stand alone as well: on Python 3.11 reaching one through its class costs as much as a call, and
the way of a request looks at its phase a dozen times.
"""

from __future__ import annotations

from enum import Enum

from gateway.fleet.evidence import Kind
from gateway.observe.labels import Attempt, RetryReason
from gateway.upstream.faults import Fault


class Phase(Enum):
    PLACED = "placed"
    """Not yet with a member: queued, or between two attempts."""
    CONNECTING = "connecting"
    WAITING = "waiting"
    """Sent; no byte of the answer yet."""
    ANSWERING = "answering"
    FAILED = "failed"
    """Its attempt is over; what becomes of it is being decided."""
    ENDED = "ended"


PLACED, CONNECTING, WAITING, ANSWERING, FAILED, ENDED = Phase

RETRY_STATUS = frozenset((502, 503, 504))

FAULTS: dict[Fault, tuple[Kind, Attempt, RetryReason]] = {
    Fault.REFUSED: (Kind.REFUSED, Attempt.REFUSED, RetryReason.REFUSED),
    Fault.CONNECT_TIMEOUT: (Kind.REFUSED, Attempt.TIMEOUT, RetryReason.TIMEOUT),
    Fault.LOST: (Kind.RESET, Attempt.RESET, RetryReason.RESET),
    Fault.TRUNCATED: (Kind.TRUNCATED, Attempt.RESET, RetryReason.RESET),
    Fault.MALFORMED: (Kind.MALFORMED, Attempt.PROTOCOL, RetryReason.RESET),
}
"""What it says about the member, how the attempt is counted, and why a retry is made."""
