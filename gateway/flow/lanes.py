"""Requests that are for one version: it has an admission of its own, or is waited for while nobody serves it.

A request for any member never comes here. One lane for each version in rotation that is asked for; its room
is what its members have left, whoever else uses them. Who waits for a version without a member in rotation
stands in the lobby, in order of priority and arrival, as long as requests wait for room, or until its own
deadline where it asked for a least version or all members change at once. When the rotation changes everybody
who waits is looked at again. Bounded: lanes by the versions of members, each queue and the lobby by
`max_queued`. Owned by one `gateway.flow.service.Service`.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from gateway.errors import OverCapacity, VersionNotFound
from gateway.flow.admission import Admission
from gateway.flow.aim import AGAIN_S, Aim, not_served, settle
from gateway.flow.call import Call
from gateway.flow.ticket import Place, Ticket
from gateway.observe.labels import Refusal

if TYPE_CHECKING:
    from gateway.flow.service import Service


class Lane(Admission):
    """The admission of one version."""

    def withdraw(self) -> list[Ticket]:
        """Everybody who waits, in order, as if they had never come."""
        waiting = [entry[3] for entry in self._queue]
        self._queue.clear()
        for ticket in waiting:
            ticket.place = Place.NEW
            ticket.entry = None
        return waiting

    def step_back(self, ticket: Ticket) -> None:
        """One that was admitted goes elsewhere."""
        if ticket.place is Place.ADMITTED:
            self.in_flight -= 1
            self.tokens -= ticket.tokens
            ticket.place = Place.NEW
            ticket.entry = None


class Lanes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._fleet = service.fleet
        self._lanes: dict[str, Lane] = {}
        self._lobby: dict[Call, float] = {}
        """Who waits for a version, and until when."""

    def __bool__(self) -> bool:
        return bool(self._lanes or self._lobby)

    def __repr__(self) -> str:
        return f"<Lanes {self._lanes} lobby={len(self._lobby)}>"

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self._lanes.values())

    @property
    def queued(self) -> int:
        return len(self._lobby) + sum(lane.queued for lane in self._lanes.values())

    # One request

    def submit(self, call: Call, aim: Aim, now: float) -> None:
        """It goes to a member, waits, or is refused."""
        # Its own: the requests that a shared call stands for may aim anew while it runs.
        call.request.aim = copy(aim)
        self._place(call, now)

    def defer(self, call: Call, aim: Aim, now: float) -> None:
        """It was admitted and found no member with room."""
        lane = self._lanes.get(aim.label)
        if lane is not None and aim.label in self._fleet.parts.labels:
            lane.defer(call, now)
            return
        if lane is not None:
            lane.step_back(call)
        self._place(call, now)

    def leave(self, call: Call, aim: Aim, now: float, *, gone: bool) -> None:
        """It is over, wherever it stood. `gone`: its client left."""
        self._lobby.pop(call, None)
        lane = self._lanes.get(aim.label)
        if lane is not None:
            self._service.settle((lane.abandon if gone else lane.leave)(call, now), now)

    # All of them

    def changed(self, now: float) -> None:
        """Other members are in rotation, they serve something else, or requests are divided otherwise."""
        labels = self._fleet.parts.labels
        astray: list[Ticket] = []
        for label, lane in tuple(self._lanes.items()):
            if label not in labels:
                astray += lane.withdraw()
                if not lane.in_flight:
                    del self._lanes[label]
            elif self._fleet.plain and not lane.in_flight and not lane.queued:
                del self._lanes[label]
        waiting = [*(ticket for ticket in astray if isinstance(ticket, Call)), *self._lobby]
        for call in sorted(waiting, key=lambda call: -call.priority):
            self._lobby.pop(call, None)
            if call.place is Place.NEW:
                self._place(call, now)
        self.freed(now)

    def freed(self, now: float) -> None:
        """A member may have room."""
        for label, lane in tuple(self._lanes.items()):
            if lane.queued:
                self._service.settle(lane.capacity(self._room(label, lane), now), now)

    def tick(self, now: float) -> None:
        """Let time pass; some times a second."""
        for call in [call for call, until in self._lobby.items() if until <= now]:
            del self._lobby[call]
            self._refuse(call)
        for lane in tuple(self._lanes.values()):
            if lane.queued:
                self._service.settle(lane.expire(now), now)
        self.freed(now)

    # Inside

    def _place(self, call: Call, now: float) -> None:
        aim = call.request.aim
        assert aim is not None
        try:
            settle(aim, self._fleet)
        except VersionNotFound as error:
            self._service.series.refused.add(Refusal.VERSION)
            call.refuse(error)
            return
        if not aim.label:
            self._wait(call, now)
            return
        if aim.taken_over:
            self._service.series.takeovers.add()
        lane = self._lanes.get(aim.label)
        if lane is None:
            lane = self._lanes[aim.label] = Lane(self._service.limits, now)
        settled = lane.capacity(self._room(aim.label, lane), now)
        if lane.enter(call, now):
            call.start(now)
        else:
            settled = [*settled, *lane.queue(call, now)]
        self._service.settle(settled, now)

    def _wait(self, call: Call, now: float) -> None:
        until = min(call.wait_until, call.deadline)
        if len(self._lobby) >= self._service.limits.max_queued:
            self._service.series.refused.add(Refusal.QUEUE_FULL)
            call.refuse(OverCapacity("Too many requests are waiting.", retry_after_s=AGAIN_S))
        elif until <= now:
            self._refuse(call)
        else:
            self._lobby[call] = until

    def _refuse(self, call: Call) -> None:
        assert call.request.aim is not None
        self._service.series.refused.add(Refusal.VERSION)
        call.refuse(not_served(call.request.aim, self._fleet))

    def _room(self, label: str, lane: Lane) -> int:
        """Requests that may run in this lane: those that do, and as many as its members have places left."""
        part = self._fleet.parts.find(label)
        return max(1, lane.in_flight + part.free) if part is not None else 0
