"""Who may go to the engines now, who waits, and who is refused before any work.

One `Admission` for each model and worker. It only counts and orders: the methods return the tickets
whose fate they settled (admitted, or refused with `ticket.refusal`), and the shell tells the requests.
Whatever happens to a request, `leave` (it ended) or `abandon` (its client left) is called once or more
and gives back what it holds.

Order: priority, then the time at which a ticket gives up (its deadline less the time an answer takes, or
`max_queue_s` after its arrival if that is sooner). So the urgent go first, those with long deadlines
cannot be starved by them beyond `max_queue_s`, and equals are served as they came. Not last in, first
out: that keeps latency low under overload by letting those who came first wait in vain, where here those
who cannot be served in time are refused when they come, and everybody who waits is served.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import count

from gateway.flow.pace import SETTLED_S, Patience, ServiceTime
from gateway.flow.ticket import Entry, Place, Reason, Refusal, Ticket
from gateway.settings.tree import Limits

SPREADS = 2
"""An answer is allowed the mean plus this many mean deviations (TCP allows round trips 4, RFC 6298): half of
all take longer than the mean, and would miss the deadline they were let in for."""

NONE: Sequence[Ticket] = ()

_NEW = Place.NEW
_QUEUED = Place.QUEUED
_ADMITTED = Place.ADMITTED
_LEFT = Place.LEFT


class Admission:
    """Times in seconds of one monotonic clock. Every method is synchronous and total."""

    __slots__ = (
        "_arrivals",
        "_down_since",
        "_limits",
        "_max_tokens",
        "_members_slots",
        "_patience",
        "_queue",
        "_service",
        "_slots",
        "in_flight",
        "tokens",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        """No backend is ready until `capacity` says so."""
        self.in_flight = 0
        """Requests admitted that have not left."""
        self.tokens = 0
        """Estimated tokens of those."""
        self._limits = limits
        self._max_tokens = limits.max_tokens_in_flight
        self._members_slots = 0
        self._slots = 0
        self._queue: list[Entry] = []
        self._arrivals = count()
        self._service = ServiceTime()
        self._patience = Patience()
        self._down_since = now

    def __repr__(self) -> str:
        return (
            f"<Admission in_flight={self.in_flight}/{self._slots} tokens={self.tokens}/{self._max_tokens} "
            f"queued={self.queued}>"
        )

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Whether there is any backend."""
        return self._slots > 0

    def wait_s(self, ahead: int) -> float:
        """Expected wait of one with so many ahead of it in the queue; 0 while nothing is known."""
        slots = max(1, self._slots)
        if self.in_flight and self.tokens:
            slots = min(slots, max(1, self._max_tokens * self.in_flight // self.tokens))
        return (ahead + 1) * self._service.mean_s / slots

    # -- one request

    def enter(self, ticket: Ticket, now: float) -> bool:
        """Admit it at once if nobody waits and there is room. One that is too big for any room goes alone."""
        if ticket.place is not _NEW:
            raise ValueError(f"{ticket!r} was used before: each request needs a ticket of its own")
        in_flight = self.in_flight
        tokens = self.tokens + ticket.tokens
        if self._queue or in_flight >= self._slots or (tokens > self._max_tokens and in_flight):
            return False
        self.in_flight = in_flight + 1
        self.tokens = tokens
        ticket.place = _ADMITTED
        ticket.admitted_at = now
        return True

    def queue(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        """Let it wait, if it can be served in time; to be called after `enter` said no.

        Returns those settled: nobody if it waits; itself if it is refused (or there was room after all);
        another one, of lower priority, whose place it took.
        """
        if ticket.place is not _NEW:
            raise ValueError(f"{ticket!r} was used before: each request needs a ticket of its own")
        ticket.queued_at = now
        entry = self._entry(ticket, now)
        position = bisect_left(self._queue, entry)
        if self.ready and self.wait_s(position) > self._allowed_s(ticket, now):
            return (self._refuse(ticket, Reason.WOULD_MISS_DEADLINE, now),)
        settled: list[Ticket] = []
        if len(self._queue) >= self._limits.max_queued:
            if not self._queue or self._queue[-1][0] <= entry[0]:
                return (self._refuse(ticket, Reason.QUEUE_FULL, now),)
            settled.append(self._refuse(self._queue.pop()[3], Reason.QUEUE_FULL, now))
        ticket.place = _QUEUED
        ticket.entry = entry
        self._queue.insert(position, entry)
        settled.extend(self._admit(now))
        return settled

    def defer(self, ticket: Ticket, now: float) -> None:
        """An admitted ticket found no member with room: it waits again, in the place it had.

        It is tried again when one leaves or comes, and at each `capacity` and `expire`. Never refused for
        a full queue.
        """
        if ticket.place is not _ADMITTED:
            return
        self.in_flight -= 1
        self.tokens -= ticket.tokens
        if ticket.entry is None:
            ticket.queued_at = ticket.admitted_at
            ticket.entry = self._entry(ticket, ticket.admitted_at)
        ticket.place = _QUEUED
        insort(self._queue, ticket.entry)

    def leave(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        """It has ended, well or not; idempotent. Returns those settled by the room it leaves."""
        if ticket.place is _ADMITTED:
            self._service.add(now - ticket.admitted_at, now)
        return self._release(ticket, now)

    def abandon(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        """Its client left, wherever it stood; idempotent. Returns those settled by the room it leaves.

        Clients that leave after a wait say that it is too long, even if they named no deadline.
        """
        place = ticket.place
        waited_s = (ticket.admitted_at if place is _ADMITTED else now) - ticket.queued_at
        if ticket.entry is not None and place in (_QUEUED, _ADMITTED) and waited_s > SETTLED_S:
            self._patience.lost(now)
        return self._release(ticket, now)

    # -- all of them

    def expire(self, now: float) -> Sequence[Ticket]:
        """Refuse those that have waited as long as they may, and admit deferred ones again if there is room.

        To be called a few times a second while any wait.
        """
        late = [entry[3] for entry in self._queue if entry[1] <= now]
        if not late:
            return self._admit(now)
        self._queue = [entry for entry in self._queue if entry[1] > now]
        settled = [self._refuse(ticket, self._lateness(), now) for ticket in late]
        settled.extend(self._admit(now))
        return settled

    def capacity(self, slots: int, now: float) -> Sequence[Ticket]:
        """How many requests the members in rotation may have in all; 0: none is ready, everybody waits."""
        if slots <= 0 < self._members_slots:
            self._down_since = now
        self._members_slots = slots
        self._slots = min(self._limits.max_in_flight, max(0, slots))
        return self._admit(now)

    def reconfigure(self, limits: Limits, now: float) -> Sequence[Ticket]:
        """New limits for what comes; nobody who waits or runs is sent away by them."""
        self._limits = limits
        self._max_tokens = limits.max_tokens_in_flight
        return self.capacity(self._members_slots, now)

    # -- inside

    def _release(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        place = ticket.place
        ticket.place = _LEFT
        if place is _ADMITTED:
            self.in_flight -= 1
            self.tokens -= ticket.tokens
        elif place is _QUEUED and ticket.entry is not None:
            del self._queue[bisect_left(self._queue, ticket.entry)]
        return self._admit(now) if self._queue else NONE

    def _admit(self, now: float) -> Sequence[Ticket]:
        """Admit from the front while there is room; those past their time are dropped on the way."""
        queue = self._queue
        settled: list[Ticket] = []
        for entry in queue:
            ticket = entry[3]
            if entry[1] <= now:
                settled.append(self._refuse(ticket, self._lateness(), now))
                continue
            if self.in_flight >= self._slots:
                break
            if self.in_flight and self.tokens + ticket.tokens > self._max_tokens:
                break
            self.in_flight += 1
            self.tokens += ticket.tokens
            ticket.place = _ADMITTED
            ticket.admitted_at = now
            self._patience.served()
            settled.append(ticket)
        if not settled:
            return NONE
        del queue[: len(settled)]
        return settled

    def _lateness(self) -> Reason:
        return Reason.TIMED_OUT if self.ready else Reason.NO_BACKEND

    def _refuse(self, ticket: Ticket, reason: Reason, now: float) -> Ticket:
        """The ticket, refused. It is in the queue no more (or was never)."""
        waited_s = now - ticket.queued_at
        # Without any backend: it takes as long again as it has taken, for all that is known.
        expected_s = self.wait_s(self.queued) if self.ready else now - self._down_since
        ticket.place = Place.REFUSED
        ticket.refusal = Refusal(reason, min(60, max(1, round(expected_s + 0.5))), waited_s)
        if self.ready:
            self._patience.lost(now)
        return ticket

    def _entry(self, ticket: Ticket, now: float) -> Entry:
        """Its place in the order. It gives up when an answer of mean length would come too late."""
        hopeless_at = ticket.deadline - self._service.mean_s * self._share(ticket)
        give_up_at = min(now + self._limits.max_queue_s, hopeless_at)
        return (-ticket.priority, give_up_at, next(self._arrivals), ticket)

    def _allowed_s(self, ticket: Ticket, now: float) -> float:
        """The longest wait after which it is still likely to be answered in time."""
        needs_s = (self._service.mean_s + SPREADS * self._service.spread_s) * self._share(ticket)
        longest_s = self._patience.longest_s(now, self._limits.max_queue_s)
        return min(longest_s, ticket.deadline - needs_s - now)

    def _share(self, ticket: Ticket) -> float:
        """What it asks for, as a share of what those in flight do on average; at most 1."""
        if not self.tokens:
            return 1.0
        return min(1.0, ticket.tokens * self.in_flight / self.tokens)
