"""Whatever happens in whatever order: the counts are those of a model that keeps lists."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from gateway.flow.admission import Admission
from gateway.flow.ticket import Place, Ticket
from gateway.settings.tree import Limits

MAX_IN_FLIGHT = 4
MAX_TOKENS = 100
MAX_QUEUED = 5


class AdmissionMachine(RuleBasedStateMachine):
    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.slots = 3
        limits = Limits(
            max_in_flight=MAX_IN_FLIGHT,
            max_tokens_in_flight=MAX_TOKENS,
            max_queued=MAX_QUEUED,
            max_queue_s=20,
        )
        self.gate = Admission(limits, self.now)
        self.gate.capacity(self.slots, self.now)
        self.all: list[Ticket] = []
        self.deferred = 0

    def of(self, place: Place) -> list[Ticket]:
        return [ticket for ticket in self.all if ticket.place is place]

    @rule(
        target=tickets,
        tokens=st.integers(0, 250),
        timeout_s=st.floats(0, 60),
        priority=st.integers(-2, 2),
    )
    def arrive(self, tokens: int, timeout_s: float, priority: int) -> Ticket:
        ticket = Ticket(tokens, self.now + timeout_s, priority)
        self.all.append(ticket)
        if not self.gate.enter(ticket, self.now):
            settled = self.gate.queue(ticket, self.now)
            assert ticket.place is Place.QUEUED or ticket in settled
        return ticket

    @rule(ticket=tickets)
    def leave(self, ticket: Ticket) -> None:
        for settled in self.gate.leave(ticket, self.now):
            assert settled.place in (Place.ADMITTED, Place.REFUSED)
        assert ticket.place is Place.LEFT

    @rule(ticket=tickets)
    def abandon(self, ticket: Ticket) -> None:
        self.gate.abandon(ticket, self.now)
        assert ticket.place is Place.LEFT

    @rule(target=tickets, ticket=consumes(tickets))
    def defer(self, ticket: Ticket) -> object:
        was = ticket.place
        self.gate.defer(ticket, self.now)
        if was is Place.ADMITTED:
            assert ticket.place is Place.QUEUED
            self.deferred += 1
            return ticket
        assert ticket.place is was
        return multiple()

    @rule(seconds=st.floats(0, 15))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for settled in self.gate.expire(self.now):
            assert settled.place in (Place.ADMITTED, Place.REFUSED)
        assert all(ticket.give_up_at > self.now for ticket in self.of(Place.QUEUED))

    @rule(slots=st.integers(0, 6))
    def capacity(self, slots: int) -> None:
        self.slots = slots
        self.gate.capacity(slots, self.now)
        assert self.gate.ready is (slots > 0)

    @invariant()
    def counts_are_what_the_tickets_say(self) -> None:
        admitted = self.of(Place.ADMITTED)
        assert self.gate.in_flight == len(admitted)
        assert self.gate.tokens == sum(ticket.tokens for ticket in admitted)
        assert self.gate.queued == len(self.of(Place.QUEUED))

    @invariant()
    def nothing_is_unbounded(self) -> None:
        assert self.gate.in_flight <= MAX_IN_FLIGHT
        assert self.gate.queued <= MAX_QUEUED + self.deferred
        assert self.gate.tokens <= MAX_TOKENS or self.gate.in_flight == 1

    @invariant()
    def refusals_say_when_to_come_back(self) -> None:
        for ticket in self.all:
            if ticket.place is Place.REFUSED:
                assert ticket.refusal is not None
                assert 1 <= ticket.refusal.retry_after_s <= 60

    @invariant()
    def room_and_waiting_do_not_go_together(self) -> None:
        waiting = self.of(Place.QUEUED)
        if waiting and self.gate.ready and self.deferred == 0:
            first = min(waiting, key=lambda ticket: ticket.entry or (0, 0.0, 0, ticket))
            full = self.gate.in_flight >= min(self.slots, MAX_IN_FLIGHT)
            too_big = self.gate.in_flight > 0 and self.gate.tokens + first.tokens > MAX_TOKENS
            assert full or too_big

    def teardown(self) -> None:
        for ticket in self.all:
            self.gate.leave(ticket, self.now)
        assert (self.gate.in_flight, self.gate.tokens, self.gate.queued) == (0, 0, 0)


AdmissionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAdmissionMachine = AdmissionMachine.TestCase
