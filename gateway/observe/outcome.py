"""How a request ended: the small closed set that metrics, logs and traces share.

Every request ends in exactly one of these, so the requests equal the sum of the outcomes.
The rich error for people is in `gateway.errors`; this is its label.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    OK = "ok"
    CLIENT_ERROR = "client_error"
    """The request was wrong (4xx that is none of the others), by our word or the engine's."""
    UNAUTHORIZED = "unauthorized"
    """401 or 403."""
    OVER_QUOTA = "over_quota"
    """429: the caller's own limit."""
    OVER_CAPACITY = "over_capacity"
    """503: ours."""
    NO_BACKEND = "no_backend"
    """503: no member could take it."""
    BACKEND_ERROR = "backend_error"
    """A member answered with 5xx or broke before the first byte, and no retry was left."""
    TIMEOUT = "timeout"
    """504: one of the four time limits."""
    TRUNCATED = "truncated"
    """The stream broke after its first byte and ended in an error event."""
    CLIENT_GONE = "client_gone"
    """The client left; never a backend's failure."""
    INTERNAL_ERROR = "internal_error"
    """A fault of the gateway itself."""


REFUSALS = frozenset(
    {
        Outcome.CLIENT_ERROR,
        Outcome.UNAUTHORIZED,
        Outcome.OVER_QUOTA,
        Outcome.OVER_CAPACITY,
        Outcome.NO_BACKEND,
    }
)
"""Where no engine and no cache answered: such requests say nothing about latency."""
