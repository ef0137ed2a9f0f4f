"""G3: a simulated engine, offered more than it can serve. Virtual time, so nothing here can be slow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest

from gateway.flow.admission import Admission
from gateway.flow.ticket import Place, Ticket
from gateway.settings.tree import Limits

SLOTS = 50
SERVICE_S = 0.5
CAPACITY = SLOTS / SERVICE_S
"""Requests a second."""


@dataclass
class Simulation:
    """Poisson arrivals; service times vary by half; clients name a deadline, or just leave."""

    timeout_s: float = 600.0
    patience_s: float | None = None
    """A client that does not say so leaves after this time."""
    random: Random = field(default_factory=lambda: Random(7))
    now: float = 0.0
    good: list[float] = field(default_factory=list)
    """When answers were complete that somebody still waited for, and how long they took."""
    latency: list[tuple[float, float]] = field(default_factory=list)
    refused_late: int = 0
    refused_at_once: int = 0

    def __post_init__(self) -> None:
        self.gate = Admission(Limits(max_in_flight=SLOTS), 0.0)
        self.gate.capacity(SLOTS, 0.0)
        self._events: list[tuple[float, int, str, Ticket | None]] = []
        self._order = count()
        self._came: dict[int, float] = {}

    def _at(self, when: float, what: str, ticket: Ticket | None = None) -> None:
        heappush(self._events, (when, next(self._order), what, ticket))

    def run(self, rate: float, seconds: float) -> None:
        """Offer `rate` requests a second for that long."""
        until = self.now + seconds
        self._at(self.now, "arrive")
        self._at(self.now, "expire")
        while self._events and self._events[0][0] <= until:
            self.now, _, what, ticket = heappop(self._events)
            if what == "arrive":
                self._arrive()
                self._at(self.now + self.random.expovariate(rate), "arrive")
            elif what == "expire":
                self._settle(self.gate.expire(self.now))
                self._at(self.now + 0.1, "expire")
            elif ticket is not None and ticket.place in (Place.ADMITTED, Place.QUEUED):
                self._end(what, ticket)
        self.now = until
        self._events = [event for event in self._events if event[2] not in ("arrive", "expire")]

    def _arrive(self) -> None:
        ticket = Ticket(100, self.now + self.timeout_s)
        self._came[id(ticket)] = self.now
        if self.patience_s is not None:
            self._at(self.now + self.patience_s, "gone", ticket)
        if self.gate.enter(ticket, self.now):
            self._settle([ticket])
        else:
            self._settle(self.gate.queue(ticket, self.now), newcomer=ticket)

    def _end(self, what: str, ticket: Ticket) -> None:
        if what == "done":
            took = self.now - self._came[id(ticket)]
            if took <= self.timeout_s:
                self.good.append(self.now)
                self.latency.append((self.now, took))
        release = self.gate.abandon if what == "gone" else self.gate.leave
        self._settle(release(ticket, self.now))

    def _settle(self, tickets: Iterable[Ticket], newcomer: Ticket | None = None) -> None:
        for ticket in tickets:
            if ticket.place is Place.ADMITTED:
                self._at(self.now + SERVICE_S * self.random.uniform(0.5, 1.5), "done", ticket)
            elif ticket is newcomer:
                self.refused_at_once += 1
            else:
                self.refused_late += 1

    def goodput(self, since: float, until: float) -> float:
        return sum(since <= when < until for when in self.good) / (until - since)


@pytest.mark.parametrize("timeout_s", [2.0, 5.0, 600.0])
@pytest.mark.parametrize("factor", [1.2, 2.0, 3.0])
def test_overload_does_not_lower_goodput(timeout_s: float, factor: float) -> None:
    simulation = Simulation(timeout_s=timeout_s)
    simulation.run(CAPACITY * 0.5, 10)
    simulation.run(CAPACITY * factor, 120)
    assert simulation.goodput(15, 130) >= 0.9 * CAPACITY


def test_clients_that_leave_without_a_word_do_not_collapse_it() -> None:
    simulation = Simulation(patience_s=6.0)
    simulation.run(CAPACITY * 0.5, 10)
    simulation.run(CAPACITY * 2, 120)
    assert simulation.goodput(30, 130) >= 0.9 * CAPACITY


def test_nearly_all_refusals_come_at_once() -> None:
    simulation = Simulation(timeout_s=5.0)
    simulation.run(CAPACITY * 2, 120)
    assert simulation.refused_at_once > 0
    assert simulation.refused_late <= 0.01 * simulation.refused_at_once


def test_latency_is_back_within_ten_seconds_when_the_load_falls() -> None:
    simulation = Simulation()
    simulation.run(CAPACITY * 2, 120)
    simulation.run(CAPACITY * 0.5, 30)
    late = [took for when, took in simulation.latency if when >= 130]
    assert max(late) < 2 * SERVICE_S


def test_a_burst_that_the_queue_can_hold_loses_nobody() -> None:
    simulation = Simulation()
    simulation.run(CAPACITY * 0.5, 10)
    simulation.run(CAPACITY * 4, 4)
    simulation.run(CAPACITY * 0.5, 60)
    assert simulation.refused_at_once + simulation.refused_late == 0
