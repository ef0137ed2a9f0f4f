"""Any evidence in any order: the state and what is said of it never contradict each other."""

from __future__ import annotations

from math import inf
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.fleet.evidence import Kind, Transition
from gateway.fleet.health import MemberHealth
from gateway.fleet.states import TRANSITIONS, Event, State
from gateway.settings.tree import Health

KINDS = st.sampled_from(sorted(Kind))


class HealthMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.health = MemberHealth(Health(), self.now, Random(3))
        self.state = State.STARTING
        self.doubted = False
        self.drained = False

    def note(self, change: Transition | None) -> None:
        """A change is told whenever there is one, and is one of the table."""
        if change is None:
            assert self.health.state is self.state
            return
        assert change.before is self.state
        assert change.after is self.health.state
        assert TRANSITIONS[change.before, change.event] is change.after
        assert change.at == self.now
        assert self.health.since == self.now or change.event is Event.WARMED
        assert change.reason
        self.state = change.after

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.note(self.health.tick(self.now))

    @rule()
    def traffic_ok(self) -> None:
        self.note(self.health.traffic_ok(self.now))

    @rule()
    def flowing(self) -> None:
        self.health.flowing(self.now)
        self.note(None)

    @rule(kind=KINDS, times=st.integers(1, 6))
    def traffic_failed(self, kind: Kind, times: int) -> None:
        for _ in range(times):
            self.note(self.health.traffic_failed(self.now, kind))

    @rule(times=st.integers(1, 3))
    def probe_ok(self, times: int) -> None:
        for _ in range(times):
            self.note(self.health.probe_ok(self.now))

    @rule(kind=KINDS, times=st.integers(1, 4))
    def probe_failed(self, kind: Kind, times: int) -> None:
        for _ in range(times):
            self.note(self.health.probe_failed(self.now, kind))

    @rule(
        tokens=st.none() | st.integers(0, 2),
        running=st.none() | st.integers(0, 2),
        readings=st.integers(1, 15),
    )
    def counters(self, tokens: int | None, running: int | None, readings: int) -> None:
        for _ in range(readings):
            self.now += 2.0
            self.note(self.health.counters(self.now, tokens, running))

    @rule()
    def drain(self) -> None:
        self.note(self.health.drain(self.now))
        self.drained = True

    @rule()
    def resume(self) -> None:
        self.note(self.health.resume(self.now))
        self.drained = False

    @rule()
    def doubt(self) -> None:
        if self.state is not State.UNCERTAIN:
            self.drained = False
        self.note(self.health.doubt(self.now, "swap"))
        self.doubted = True

    @rule()
    def proved(self) -> None:
        self.note(self.health.proved(self.now))
        self.doubted = False

    @invariant()
    def leasable_means_ready_or_on_trial(self) -> None:
        assert self.health.leasable is (self.state in (State.READY, State.SUSPECT))

    @invariant()
    def who_is_doubted_or_drained_gets_nothing(self) -> None:
        if self.doubted or self.drained:
            assert self.state in (State.UNCERTAIN, State.DRAINING)

    @invariant()
    def a_cause_is_named_while_it_is_ejected_or_on_trial(self) -> None:
        assert (self.health.cause is not None) is (self.state in (State.EJECTED, State.SUSPECT))

    @invariant()
    def it_wakes_by_time_only_while_ejected_or_fresh(self) -> None:
        if self.health.wake_at != inf:
            assert self.state is State.EJECTED or (self.state is State.READY and not self.health.warm)

    @invariant()
    def only_who_is_ready_is_fresh(self) -> None:
        assert self.health.warm or self.state is State.READY
        assert 1 <= self.health.allowance(100, 0) <= 100

    @rule()
    def changed(self) -> None:
        self.health.changed()

    def teardown(self) -> None:
        """B6: whatever happened, a healthy member that nobody drains or doubts comes back by itself."""
        self.resume()
        self.proved()
        for _ in range(60):
            self.now += 1.0
            self.note(self.health.tick(self.now))
            self.note(self.health.probe_ok(self.now))
            if self.health.leasable:
                self.note(self.health.traffic_ok(self.now))
        assert self.state is State.READY
        assert self.health.warm


HealthMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestHealthMachine = HealthMachine.TestCase
