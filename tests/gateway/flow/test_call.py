"""One call at a time: what each way of failing leads to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from gateway.fleet.states import State
from gateway.flow.account import Account
from gateway.flow.phase import Phase
from gateway.flow.request import Request
from gateway.flow.service import Service, ServiceOptions
from gateway.flow.shared import SharedCall
from gateway.observe.labels import Route
from gateway.observe.outcome import Outcome
from gateway.settings.tree import Health, Limits, Retries, Timeouts
from gateway.upstream.faults import Fault
from gateway.upstream.headers import Headers
from tests.gateway.fleets import NO_BATCHES, Client, Engines, Wire, fleet_of, metrics, refused

JSON: Headers = [(b"content-type", b"application/json")]
ELSEWHERE: Headers = [*JSON, (b"x-changeover-elsewhere", b"1")]


class Bench:
    """One model, its members, and one request at a time."""

    def __init__(self, service: Service, engines: Engines) -> None:
        self.service = service
        self.engines = engines
        self.client = Client()

    def ask(self, *, stream: bool = False, timeout_s: float | None = None) -> SharedCall:
        """Sent over an idle connection, if there is a member."""
        for member in self.service.fleet.members:
            member.pool.idle = 1  # type: ignore[attr-defined]
        self.client = Client()
        request = Request(
            Route.CHAT, b"/v1/chat/completions", b"{}", self.client, stream=stream, timeout_s=timeout_s
        )
        call = SharedCall(self.service, self.client, request, monotonic())
        self.service.submit(call, monotonic())
        return call

    @property
    def wire(self) -> Wire:
        """The only connection in use."""
        (wire,) = self.engines.busy
        return wire

    def lose(self, fault: Fault) -> None:
        wire = self.wire
        receiver, wire.receiver = wire.receiver, None
        assert receiver is not None
        receiver.on_lost(fault)

    def states(self) -> dict[str, State]:
        return {member.name: member.health.state for member in self.service.fleet.members}


HEALTH, RETRIES, LIMITS = Health(), Retries(), Limits()


@contextmanager
def bench(
    *names: str, health: Health = HEALTH, retries: Retries = RETRIES, limits: Limits = LIMITS
) -> Iterator[Bench]:
    with metrics() as counted:
        engines = Engines()
        fleet = fleet_of(counted, *names, health=health)
        options = ServiceOptions(limits, Timeouts(), retries, NO_BATCHES)
        service = Service(fleet, options, counted, Account(()), engines, monotonic())  # type: ignore[arg-type]
        fleet.on_change = lambda: service.rotation_changed(monotonic())
        for member in fleet.members:
            engines.connect(member)
        service.rotation_changed(monotonic())
        yield Bench(service, engines)
        for call in list(service.live):
            call.shut_down()
        assert service.admission.in_flight == 0
        assert not any(member.in_flight for member in fleet.members)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_failure_that_ejects_its_member_is_retried_once(status: int) -> None:
    """The ejection moves what waits on the member; the request that caused it decides for itself."""
    with bench("a", "b", health=Health(traffic_failures=1)) as b:
        call = b.ask()
        first = b.wire
        call.on_head(status, JSON)
        assert first.abandoned
        assert b.wire.member is not first.member
        assert (call.phase, call.record.tries, b.client.told) == (Phase.WAITING, 2, [])
        assert list(b.states().values()).count(State.EJECTED) == 1


def test_others_that_wait_on_an_ejected_member_move_too() -> None:
    with bench("a", "b", health=Health(traffic_failures=1)) as b:
        calls = [b.ask() for _ in range(4)]
        sick = calls[0].member
        assert [call.member is sick for call in calls].count(True) == 2
        calls[0].on_head(503, JSON)
        assert not any(call.member is sick for call in calls)
        assert all(call.phase in (Phase.WAITING, Phase.CONNECTING) for call in calls)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TRUNCATED, Fault.MALFORMED])
def test_only_what_died_before_any_byte_is_retried(fault: Fault) -> None:
    with bench("a", "b") as b:
        call = b.ask()
        call._replaced = True
        b.lose(fault)
        if fault is Fault.LOST:
            assert (call.phase, call.record.tries) == (Phase.WAITING, 2)
        else:
            assert (call.phase, b.client.told) == (Phase.ENDED, ["broken"])
            assert call.record.outcome is Outcome.BACKEND_ERROR


def test_nothing_is_retried_after_the_first_byte() -> None:
    with bench("a", "b") as b:
        call = b.ask(stream=True)
        call.on_head(200, [(b"content-type", b"text/event-stream")])
        call.on_data(b"data: {}\n\n")
        b.lose(Fault.TRUNCATED)
        assert b.client.told == ["head", "data", "broken"]
        assert (call.record.outcome, call.record.tries) == (Outcome.TRUNCATED, 1)


def test_a_request_is_tried_three_times_at_most() -> None:
    with bench("a", "b", "c", "d") as b:
        call = b.ask()
        for _ in range(2):
            call.on_head(503, JSON)
            assert b.client.told == []
        call.on_head(503, JSON)
        assert b.client.told == ["head"]
        assert call.record.tries == 3
        assert len({wire.member.name for wire in b.engines.wires}) == 3


def test_without_a_budget_the_failure_is_passed_on_and_nobody_holds_a_second_place() -> None:
    with bench("a", "b", retries=Retries(budget_ratio=0, budget_min_per_s=0)) as b:
        call = b.ask()
        call.on_head(503, JSON)
        assert b.client.told == ["head"]
        assert sum(member.in_flight for member in b.service.fleet.members) == 1


def test_a_budget_is_not_spent_where_there_is_nobody_else() -> None:
    with bench(
        "a", retries=Retries(budget_ratio=0, budget_min_per_s=0.1), health=Health(traffic_failures=99)
    ) as b:
        before = b.service._budget.balance(monotonic())
        b.ask().on_head(503, JSON)
        assert b.service._budget.balance(monotonic()) == pytest.approx(before, abs=0.1)


def test_what_a_leaving_member_turns_away_waits_if_there_is_nobody_else() -> None:
    with bench("a") as b:
        call = b.ask()
        call.on_head(503, ELSEWHERE)
        assert (call.phase, b.client.told, b.service.admission.queued) == (Phase.PLACED, [], 1)
        assert b.states() == {"a": State.DRAINING}


def test_a_refused_connection_waits_if_there_is_nobody_else_and_then_fails() -> None:
    with bench("a", health=Health(traffic_failures=99), limits=Limits(max_queue_s=5)) as b:
        b.service.fleet.members[0].pool.idle = 0  # type: ignore[attr-defined]
        call = b.ask()
        b.lose(Fault.LOST)  # the idle connection was closed: replaced once
        b.engines.opening[0].settle(refused())
        assert call.phase is Phase.PLACED
        b.service.tick(monotonic())
        assert call.phase in (Phase.CONNECTING, Phase.WAITING)


def test_a_kept_connection_that_died_is_replaced_once_and_nobody_is_blamed() -> None:
    with bench("a") as b:
        call = b.ask()
        assert b.wire.reused
        b.lose(Fault.LOST)
        (opening,) = b.engines.opening
        member = b.service.fleet.members[0]
        assert (call.phase, member.failures) == (Phase.CONNECTING, 0)
        opening.settle(b.engines.wire(member))
        b.lose(Fault.LOST)
        assert (call.record.outcome, member.failures, call.record.tries) == (Outcome.BACKEND_ERROR, 1, 1)


@pytest.mark.parametrize(("timeout_s", "failures"), [(1.0, 0), (None, 1), (1e6, 1)])
def test_a_limit_of_the_clients_own_blames_nobody(timeout_s: float | None, failures: int) -> None:
    with bench("a") as b:
        call = b.ask(timeout_s=timeout_s)
        b.service.tick(monotonic() + 601)
        assert call.record.outcome is Outcome.TIMEOUT
        assert b.service.fleet.members[0].failures == failures


def test_an_answer_that_flows_blames_nobody_however_long_it_gets() -> None:
    with bench("a") as b:
        call = b.ask()
        call.on_head(200, JSON)
        call.on_data(b"{")
        call.record.last = monotonic() + 600
        b.service.tick(monotonic() + 601)
        assert call.record.outcome is Outcome.TRUNCATED
        assert b.service.fleet.members[0].failures == 0


def test_a_client_that_leaves_while_a_connection_is_made_ends_that() -> None:
    with bench("a") as b:
        call = b.ask()
        b.lose(Fault.LOST)
        (opening,) = b.engines.opening
        call.leave()
        assert opening.closed
        assert call.record.outcome is Outcome.CLIENT_GONE


def test_an_ended_call_hears_nothing_more() -> None:
    with bench("a") as b:
        call = b.ask()
        call.leave()
        for _ in range(2):
            call.leave()
            call.on_lost(Fault.LOST)
            call.on_done()
            call.shut_down()
            call.tick(monotonic() + 10_000)
        assert len(b.client.records) == 1
        assert b.client.told == []


def test_requests_that_hang_on_a_member_outside_take_no_place_inside() -> None:
    with bench("a", "b", limits=Limits(max_in_flight=100)) as b:
        for _ in range(4):
            b.ask()
        assert [member.in_flight for member in b.service.fleet.members] == [2, 2]
        b.service.fleet.apply([b.service.fleet.members[0].spec], monotonic())
        for _ in range(2):
            b.ask()
        assert (b.service.fleet.members[0].in_flight, b.service.admission.queued) == (4, 0)
        b.ask()
        assert b.service.admission.queued == 1
