"""A request's claim on capacity: one object that is queued, admitted, refused, and given back once.

Only `gateway.flow.admission` changes a ticket. The shell may subclass it, so that the ticket is the
request it already has: then `settled` tickets can be told without a look-up.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Place(StrEnum):
    NEW = "new"
    QUEUED = "queued"
    ADMITTED = "admitted"
    REFUSED = "refused"
    LEFT = "left"


class Reason(StrEnum):
    """Why a request is refused: by our capacity, never by the caller's quota."""

    QUEUE_FULL = "queue_full"
    WOULD_MISS_DEADLINE = "would_miss_deadline"
    """It would have to wait longer than its deadline or our patience allows, so it need not wait at all."""
    TIMED_OUT = "timed_out"
    """It waited as long as it may."""
    NO_BACKEND = "no_backend"
    """It waited, and no member was ready all the while."""


class Refusal(NamedTuple):
    reason: Reason
    retry_after_s: int
    """When those who are waiting now should have been served; from 1 to 60."""
    waited_s: float = 0.0


Entry = tuple[int, float, int, "Ticket"]
"""What orders the queue: priority (negated), time to give up, arrival."""


_NEW = Place.NEW


class Ticket:
    """`tokens`: estimate of prompt plus answer. `deadline`: when the whole answer must have been sent."""

    __slots__ = ("admitted_at", "deadline", "entry", "place", "priority", "queued_at", "refusal", "tokens")

    def __init__(self, tokens: int, deadline: float, priority: int = 0) -> None:
        self.tokens = tokens
        self.deadline = deadline
        self.priority = priority
        self.place = _NEW
        self.refusal: Refusal | None = None
        """Set when it is refused."""
        self.queued_at = 0.0
        self.admitted_at = 0.0
        self.entry: Entry | None = None

    @property
    def give_up_at(self) -> float:
        """When a queued ticket is refused, because waiting longer has no use."""
        if self.entry is None:
            return self.deadline
        return self.entry[1]

    def __repr__(self) -> str:
        return f"<Ticket {self.place.value} tokens={self.tokens} priority={self.priority}>"
