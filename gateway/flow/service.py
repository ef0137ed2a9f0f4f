"""One model being served: its members, its admission, its budget, and every request that is under way.

The shell around `admission`: it tells requests what was settled about them, gives capacity back when
they end, and lets time pass for them. One for each model and worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gateway.errors import GatewayError, NoBackend, OverCapacity
from gateway.fleet.evidence import Kind
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Lease, Member
from gateway.flow.account import Account
from gateway.flow.admission import Admission
from gateway.flow.aim import Aim, take_aim
from gateway.flow.batcher import Batcher, BatchOptions
from gateway.flow.budget import RetryBudget
from gateway.flow.call import Call
from gateway.flow.guest import Guest
from gateway.flow.lanes import Lanes
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.flow.shadow import Shadow
from gateway.flow.ticket import Place, Reason, Ticket
from gateway.http.exchange import Exchange
from gateway.observe import labels
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.settings.tree import Continuation, Limits, Retries, Timeouts
from gateway.tasks import TaskOwner

_REFUSALS: dict[Reason, tuple[labels.Refusal, type[GatewayError], str]] = {
    Reason.QUEUE_FULL: (labels.Refusal.QUEUE_FULL, OverCapacity, "Too many requests are waiting."),
    Reason.WOULD_MISS_DEADLINE: (
        labels.Refusal.DEADLINE,
        OverCapacity,
        "The wait for a backend would be longer than this request may take.",
    ),
    Reason.TIMED_OUT: (labels.Refusal.QUEUE_TIMEOUT, OverCapacity, "No backend had room in time."),
    Reason.NO_BACKEND: (labels.Refusal.NO_MEMBER, NoBackend, "No backend of this model is ready."),
}


_GONE = Outcome.CLIENT_GONE
_ON, _AUTO = Continuation.ON, Continuation.AUTO


@dataclass(slots=True)
class ServiceOptions:
    """What of the settings a service needs."""

    limits: Limits
    timeouts: Timeouts
    retries: Retries
    batching: BatchOptions


class Service:
    """Requests for one model."""

    def __init__(
        self,
        fleet: Fleet,
        options: ServiceOptions,
        metrics: Metrics,
        account: Account,
        tasks: TaskOwner,
        now: float,
    ) -> None:
        self.name = fleet.model
        self.fleet = fleet
        self.series = metrics.model(fleet.model)
        self.series_of = {route: metrics.request_series(fleet.model, route) for route in labels.Route}
        self.tasks = tasks
        self.limits = options.limits
        self.timeouts = options.timeouts
        self.retries = options.retries
        self.admission = Admission(options.limits, now)
        self.live: set[Call | Guest] = set()
        """Requests that have begun and not ended, and the calls that some of them share."""
        self.lanes = Lanes(self)
        """Requests that are for one version, while members differ or clients ask for it."""
        self.batcher = Batcher(self, options.batching)
        self._budget = RetryBudget(options.retries.budget_ratio, options.retries.budget_min_per_s, now)
        self.account = account
        self.shadow = Shadow(fleet, self.series.versions)
        fleet.on_ejected = self._fail_over

    def __repr__(self) -> str:
        return f"<Service {self.name} live={len(self.live)} {self.admission!r}>"

    @property
    def continues(self) -> bool:
        """Whether streams are kept so that another engine may go on with them."""
        mode = self.retries.continuation
        return mode is _ON or (mode is _AUTO and self.fleet.has_agents)

    def submit(self, call: Call, now: float) -> None:
        """A request has come: it goes to a member, waits, or is refused."""
        self.live.add(call)
        if call.counted:
            self.series_of[call.request.route].begin()
        self._budget.request()
        if self.shadow.on:
            self.shadow.copy(call.request)
        aim = call.request.aim
        if aim is not None and not aim.soft:
            self.lanes.submit(call, aim, now)
        elif self.admission.enter(call, now):
            call.start(now)
        else:
            self.settle(self.admission.queue(call, now), now)
            self._show_queued()

    def defer(self, call: Ticket, now: float) -> None:
        """An admitted request found no member with room: it waits in the place it had."""
        assert isinstance(call, Call)
        aim = call.request.aim
        if aim is not None and not aim.soft:
            self.lanes.defer(call, aim, now)
        else:
            self.admission.defer(call, now)
        self._show_queued()

    def ended(self, call: Call, record: Record) -> None:
        """A request is over: called once for each, by itself."""
        self.live.discard(call)
        # One that its client gave up says nothing about how long an answer takes.
        gone = record.outcome is _GONE
        aim = call.request.aim
        if aim is not None and not aim.soft:
            self.lanes.leave(call, aim, record.ended, gone=gone)
        settled = (self.admission.abandon if gone else self.admission.leave)(call, record.ended)
        if isinstance(call.exchange, Exchange):
            self.account.close(self.series_of[record.route], record, call.exchange, call.request)
        else:
            call.exchange.ended(record)
        if self.lanes:
            # Whoever was just admitted here waits in the place he had if they take his.
            self.lanes.freed(record.ended)
        if settled or call.entry is not None:
            self.settle(settled, record.ended)
            self._show_queued()

    def guest_came(self, guest: Guest) -> None:
        """A request has come that may be answered by a call of others, or from the cache."""
        self.live.add(guest)
        self.series_of[guest.record.route].begin()

    def guest_ended(self, guest: Guest) -> None:
        """It is over: called once for each, by itself."""
        self.live.discard(guest)
        series = self.series_of[guest.record.route]
        self.account.close(series, guest.record, guest.exchange, guest.request)

    def may_retry(self, now: float) -> bool:
        """Take a retry from the budget."""
        if self._budget.withdraw(now):
            return True
        self.series.retry_budget_exhausted.add()
        return False

    def blame(self, member: Member, kind: Kind, now: float) -> None:
        """A request on a member ended badly; whether it was the member's fault, `kind` says."""
        if kind.counts:
            member.failures += 1
            self.series.versions.of(member.version).faults.add()
        self.fleet.note(member, member.health.traffic_failed(now, kind))

    def rotation_changed(self, now: float) -> None:
        """The members that may get requests are others now."""
        slots = self.fleet.slots
        if self.lanes:
            self.lanes.changed(now)
            slots = max(min(slots, 1), slots - self.lanes.in_flight)
        self.settle(self.admission.capacity(slots, now), now)
        self._show_queued()

    def tick(self, now: float) -> None:
        """Let time pass for the fleet and for every request; some times a second."""
        self.fleet.tick(now)
        if self.lanes:
            self.lanes.tick(now)
        if self.admission.queued:
            self.settle(self.admission.expire(now), now)
            # Those who were admitted and reached nobody are let in again.
            self.rotation_changed(now)
        for call in tuple(self.live):
            call.tick(now)

    def reconfigure(self, options: ServiceOptions, now: float) -> None:
        """New options for what comes; what runs keeps its deadline."""
        self.limits = options.limits
        self.timeouts = options.timeouts
        self.retries = options.retries
        self.batcher.options = options.batching
        self._budget.ratio = options.retries.budget_ratio
        self._budget.min_per_s = options.retries.budget_min_per_s
        self.settle(self.admission.reconfigure(options.limits, now), now)

    def aim(self, request: Request, exchange: Exchange) -> None:
        """Decide which version a request goes to, where that is not plain. Raises VersionNotFound."""
        split = self.fleet.split
        if request.wish is None and split is None:
            return
        header = split.sticky_header if split is not None else None
        name = header.lower().encode() if header is not None else b""
        sticky = next((value for key, value in exchange.headers if key == name), b"") if name else b""
        request.aim = take_aim(self.fleet, request.wish, sticky)

    def lease_aimed(self, request: Request, aim: Aim, tried: Collection[str]) -> Lease | None:
        """A place on a member of the version that the request goes to; of another, where that will do."""
        fleet = self.fleet
        lease = fleet.lease_at(aim.label, request.hint, request.tokens, tried)
        if lease is not None:
            return lease
        if aim.soft:
            return fleet.lease(request.hint, request.tokens, tried)
        split = fleet.split
        if not tried or not aim.candidate or split is None or split.stable is None:
            return None
        # The candidate has failed it, and has no other member: the stable version takes over.
        lease = fleet.lease_at(split.stable, request.hint, request.tokens, tried)
        if lease is not None:
            self.series.takeovers.add()
        return lease

    def _show_queued(self) -> None:
        self.series.queued.set(self.admission.queued + self.lanes.queued)

    def settle(self, tickets: Iterable[Ticket], now: float) -> None:
        """Tell requests what was decided about them."""
        for ticket in tickets:
            assert isinstance(ticket, Call)
            if ticket.place is Place.ADMITTED:
                ticket.start(now)
            elif ticket.refusal is not None:
                label, kind, sentence = _REFUSALS[ticket.refusal.reason]
                self.series.refused.add(label)
                ticket.refuse(kind(sentence, retry_after_s=ticket.refusal.retry_after_s))

    def _fail_over(self, member: Member) -> None:
        for call in tuple(self.live):
            call.fail_over(member)
