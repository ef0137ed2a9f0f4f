"""Whatever befalls requests, members and their weights: every count is true, and no wish is disregarded."""

from __future__ import annotations

from time import monotonic

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, rule

from gateway.errors import VersionNotFound
from gateway.fleet.split import Split, read_wish
from gateway.flow.aim import take_aim
from gateway.flow.phase import Phase
from gateway.flow.request import Request
from gateway.flow.shared import SharedCall
from gateway.flow.ticket import Place
from gateway.observe.labels import Route
from tests.gateway.fleets import Client
from tests.gateway.flow.test_call_machine import AT_WORK, NAMES, PICK, CallMachine

V7, V8 = "v7-0a0a0a0a", "v8-0b0b0b0b"
SPLITS = (
    None,
    Split(V7),
    Split(V7, V8, 0.0),
    Split(V7, V8, 0.4),
    Split(None, V8, 0.5),
    Split(V7, V8, atomic=True),
    Split(V8, atomic=True),
)


class VersionMachine(CallMachine):
    def __init__(self) -> None:
        super().__init__()
        for member, label in zip(self.fleet.members, (V7, V7, V8), strict=True):
            self.fleet.learn_version(member, label)

    @rule(
        version=st.sampled_from(["", "7", V8, "8", "serving", "candidate", "v9"]),
        least=st.sampled_from(["", "", "", "8"]),
        stream=st.booleans(),
        tokens=st.integers(1, 9),
    )
    def ask_for(self, version: str, least: str, stream: bool, tokens: int) -> None:
        client = Client()
        request = Request(Route.CHAT, b"/v1/chat/completions", b"{}", client, stream=stream, tokens=tokens)
        request.wish = read_wish(version.encode(), least.encode())
        if request.wish is not None or self.fleet.split is not None:
            try:
                request.aim = take_aim(self.fleet, request.wish, b"")
            except VersionNotFound:
                return
        for member in self.fleet.members:
            member.pool.idle = 1  # type: ignore[attr-defined]
        call = SharedCall(self.service, client, request, monotonic())
        self.calls.append(call)
        self.service.submit(call, monotonic())

    @rule(pick=PICK, label=st.sampled_from([V7, V8]))
    def take_weights(self, pick: int, label: str) -> None:
        name = NAMES[pick % len(NAMES)]
        for member in self.fleet.members:
            if member.name == name:
                self.fleet.learn_version(member, label)

    @rule(split=st.sampled_from(SPLITS))
    def divide(self, split: Split | None) -> None:
        self.fleet.divide(split)

    @rule(pick=PICK, label=st.sampled_from([V7, V8]), status=st.sampled_from([200, 200, 404]))
    def head_of_some_weights(self, pick: int, label: str, status: int) -> None:
        found = self.wire(pick, (Phase.WAITING,))
        if found is not None and found[1]._head is None:
            found[0].answered = True
            headers = [(b"content-type", b"application/json"), (b"x-model-version", label.encode())]
            found[1].on_head(status, headers)

    @invariant()
    def admission_agrees(self) -> None:
        admission, lanes = self.service.admission, self.service.lanes
        admitted = [call for call in self.calls if call.place is Place.ADMITTED]
        assert admission.in_flight + lanes.in_flight == len(admitted)
        assert admission.tokens <= sum(call.tokens for call in admitted)
        assert set(admitted) == {call for call in self.calls if call.phase in AT_WORK}
        waiting = {call for call in self.calls if call.phase is Phase.PLACED}
        assert admission.queued + lanes.queued == len(waiting)

    @invariant()
    def no_answer_is_of_weights_that_were_not_asked_for(self) -> None:
        for call in self.calls:
            wish, record = call.request.wish, call._record
            if wish is not None and record.version and record.status == 200:
                assert wish.admits(record.version)

    def teardown(self) -> None:
        for call in list(self.service.live):
            call.shut_down()
        assert not self.service.lanes.in_flight
        assert not self.service.lanes.queued
        super().teardown()


TestVersionMachine = VersionMachine.TestCase
TestVersionMachine.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
