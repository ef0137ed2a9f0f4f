"""A5: whatever befalls requests in whatever order, every count is what is really under way."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.fleet.evidence import Kind
from gateway.fleet.member import Member
from gateway.flow.account import Account
from gateway.flow.call import Call
from gateway.flow.phase import Phase
from gateway.flow.request import Request
from gateway.flow.service import Service, ServiceOptions
from gateway.flow.shared import SharedCall
from gateway.flow.ticket import Place
from gateway.observe.labels import Route
from gateway.settings.tree import Health, Limits, Retries, Timeouts
from gateway.upstream.faults import Fault
from tests.gateway.fleets import NO_BATCHES, Client, Engines, Wire, fleet_of, metrics, refused, see_well, spec

NAMES = ("a", "b", "c")
AT_WORK = (Phase.CONNECTING, Phase.WAITING, Phase.ANSWERING)
PICK = st.integers(0, 1000)


class CallMachine(RuleBasedStateMachine):
    """The network is the test's: it says what becomes of each connection, and asks who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        counted = self.stack.enter_context(metrics())
        self.engines = Engines()
        self.fleet = fleet_of(counted, *NAMES, limit=2, health=Health(traffic_failures=2))
        limits = Limits(max_in_flight=5, max_queued=3)
        options = ServiceOptions(limits, Timeouts(), Retries(), NO_BATCHES)
        self.service = Service(self.fleet, options, counted, Account(()), self.engines, monotonic())  # type: ignore[arg-type]
        self.fleet.on_change = lambda: self.service.rotation_changed(monotonic())
        self.members: list[Member] = []
        """All that ever were."""
        self.calls: list[Call] = []
        self.take_up()
        self.service.rotation_changed(monotonic())

    def take_up(self) -> None:
        for member in self.fleet.members:
            if member not in self.members:
                self.engines.connect(member)
                self.members.append(member)

    def teardown(self) -> None:
        for call in list(self.service.live):
            call.shut_down()
        self.counts_are_true()
        assert self.service.admission.in_flight == self.service.admission.tokens == 0
        assert all(member.in_flight == member.tokens == 0 for member in self.members)
        self.stack.close()

    # Requests come

    @rule(stream=st.booleans(), tokens=st.integers(1, 9), kept=st.booleans())
    def ask(self, stream: bool, tokens: int, kept: bool) -> None:
        """`kept`: members have an idle connection."""
        for member in self.fleet.members:
            member.pool.idle = int(kept)  # type: ignore[attr-defined]
        client = Client()
        request = Request(Route.CHAT, b"/v1/chat/completions", b"{}", client, stream=stream, tokens=tokens)
        call = SharedCall(self.service, client, request, monotonic())
        self.calls.append(call)
        self.service.submit(call, monotonic())

    # What becomes of connections

    @precondition(lambda self: self.engines.opening)
    @rule(pick=PICK, well=st.booleans())
    def connect(self, pick: int, well: bool) -> None:
        opening = self.engines.opening[pick % len(self.engines.opening)]
        member = next(call.member for call in self.calls if id(call._connect) == id(opening))
        opening.settle(self.engines.wire(member) if well else refused())

    def wire(self, pick: int, phases: tuple[Phase, ...]) -> tuple[Wire, Call] | None:
        found = [
            (wire, wire.receiver)
            for wire in self.engines.busy
            if isinstance(wire.receiver, Call) and wire.receiver.phase in phases
        ]
        return found[pick % len(found)] if found else None

    @rule(pick=PICK, status=st.sampled_from([200, 200, 200, 400, 429, 500, 502, 503]), leaving=st.booleans())
    def head(self, pick: int, status: int, leaving: bool) -> None:
        found = self.wire(pick, (Phase.WAITING,))
        if found is not None and found[1]._head is None:
            marks = [(b"x-changeover-elsewhere", b"1")] if leaving and status == 503 else []
            found[0].answered = True
            found[1].on_head(status, [(b"content-type", b"application/json"), *marks])

    def begun(self, call: Call) -> bool:
        return call.phase is Phase.ANSWERING or call._head is not None

    @rule(pick=PICK, whole=st.booleans(), data=st.booleans())
    def answer(self, pick: int, whole: bool, data: bool) -> None:
        found = self.wire(pick, (Phase.WAITING, Phase.ANSWERING))
        if found is None or not self.begun(found[1]):
            return
        wire, call = found
        if data:
            call.on_data(b"data: {}\n\n")
        else:
            call.exchange.complete = whole  # type: ignore[union-attr]
            wire.receiver = None
            call.on_done()

    @rule(pick=PICK, fault=st.sampled_from([Fault.LOST, Fault.TRUNCATED, Fault.MALFORMED]))
    def lose(self, pick: int, fault: Fault) -> None:
        found = self.wire(pick, (Phase.WAITING, Phase.ANSWERING))
        if found is not None:
            found[0].receiver = None
            found[1].on_lost(Fault.TRUNCATED if self.begun(found[1]) else fault)

    # What clients do, and time

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        live = [call for call in self.calls if call.phase is not Phase.ENDED]
        if live:
            call = live[pick % len(live)]
            call.exchange.gone = True  # type: ignore[union-attr]
            call.exchange.on_gone()

    @rule(seconds=st.sampled_from([0.0, 0.5, 40.0, 130.0, 700.0, 4000.0]))
    def pass_time(self, seconds: float) -> None:
        self.service.tick(monotonic() + seconds)

    # What members do

    @rule(pick=PICK)
    def remove_or_bring_back(self, pick: int) -> None:
        name = NAMES[pick % len(NAMES)]
        present = {member.name for member in self.fleet.members} ^ {name}
        self.fleet.apply([spec(each) for each in NAMES if each in present], monotonic())
        self.take_up()

    @rule()
    def probes_are_good(self) -> None:
        for _ in range(2):
            see_well(self.fleet, monotonic())

    @rule(pick=PICK, kind=st.sampled_from([Kind.REFUSED, Kind.BAD_STATUS, Kind.FIRST_BYTE, Kind.ELSEWHERE]))
    def probes_are_bad(self, pick: int, kind: Kind) -> None:
        if self.fleet.members:
            member = self.fleet.members[pick % len(self.fleet.members)]
            for _ in range(3):
                self.fleet.note(member, member.health.probe_failed(monotonic(), kind))

    # What must be so at every step

    @invariant()
    def counts_are_true(self) -> None:
        at_work = [call for call in self.calls if call.phase in AT_WORK]
        for member in self.members:
            here = [call for call in at_work if call.member is member]
            assert member.in_flight == len(here)
            assert member.tokens == sum(call.tokens for call in here)
            assert not (member.retired and not here and not member.pool.closed)  # type: ignore[attr-defined]
        assert all(call.member is not None for call in at_work)

    @invariant()
    def admission_agrees(self) -> None:
        admission = self.service.admission
        admitted = [call for call in self.calls if call.place is Place.ADMITTED]
        assert admission.in_flight == len(admitted) <= 5
        assert admission.tokens == sum(call.tokens for call in admitted)
        assert set(admitted) == {call for call in self.calls if call.phase in AT_WORK}
        queued = [call for call in self.calls if call.place is Place.QUEUED]
        assert admission.queued == len(queued)
        assert all(call.phase is Phase.PLACED for call in queued)

    @invariant()
    def every_wire_belongs_to_one_call(self) -> None:
        holders = [wire.receiver for wire in self.engines.busy]
        assert len(set(holders)) == len(holders)
        sent = {call for call in self.calls if call.phase in (Phase.WAITING, Phase.ANSWERING)}
        assert set(holders) == sent
        answering = {wire.receiver for wire in self.engines.busy if wire.answered}
        assert all(call in answering for call in sent if call.phase is Phase.ANSWERING)
        opening = {call for call in self.calls if call.phase is Phase.CONNECTING}
        assert len(self.engines.opening) == len(opening)

    @invariant()
    def each_ends_once(self) -> None:
        for call in self.calls:
            ended = call.phase is Phase.ENDED
            assert len(call.exchange.records) == int(ended)  # type: ignore[union-attr]
            assert (call in self.service.live) is not ended


TestCallMachine = CallMachine.TestCase
TestCallMachine.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
