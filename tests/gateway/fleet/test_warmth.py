"""A fresh member comes to its share within a few requests or seconds, and holds nobody up."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.evidence import Kind
from gateway.fleet.health import MemberHealth
from gateway.fleet.states import Event, State
from gateway.fleet.warmth import ENOUGH, FIRST, STEP_S, Warmth
from gateway.settings.tree import Health


def health() -> MemberHealth:
    made = MemberHealth(Health(), 0.0, Random(1))
    made.probe_ok(0.0)
    return made


def test_it_may_have_twice_as_many_when_so_many_were_answered() -> None:
    warmth = Warmth()
    warmth.start(0.0)
    seen = [warmth.allowed]
    for _ in range(200):
        if warmth.answered(0.1):
            seen.append(warmth.allowed)
    assert seen == [1, 2, 4, 8, 16, 32, 64, 0]


def test_long_answers_do_not_keep_it_back() -> None:
    warmth = Warmth()
    warmth.start(0.0)
    for second in range(1, 20):
        warmth.tick(second * STEP_S)
    assert warmth.allowed == 0
    assert not warmth.tick(100.0)


@given(steps=st.lists(st.booleans(), max_size=300))
def test_its_allowance_only_grows(steps: list[bool]) -> None:
    warmth = Warmth()
    warmth.start(0.0)
    now, last = 0.0, FIRST
    for answered in steps:
        now += 0.0 if answered else STEP_S
        grew = warmth.answered(now) if answered else warmth.tick(now)
        allowed = warmth.allowed or 2 * ENOUGH
        assert allowed > last if grew else allowed == last or last == 2 * ENOUGH
        last = allowed


def test_a_member_that_is_seen_for_the_first_time_has_its_full_share() -> None:
    made = health()
    assert made.warm
    assert made.allowance(100, 0) == 100


def test_a_member_that_comes_back_from_a_swap_begins_with_one() -> None:
    made = health()
    made.probe_failed(1.0, Kind.ELSEWHERE)
    assert made.state is State.DRAINING
    made.probe_ok(2.0)
    made.probe_ok(2.2)
    assert made.state is State.READY
    assert made.allowance(100, 0) == FIRST
    grown = made.traffic_ok(2.3)
    assert grown is not None
    assert grown.event is Event.WARMED
    assert made.allowance(100, 0) == 2
    assert made.since == 2.2


def test_a_member_whose_process_was_gone_begins_with_one() -> None:
    made = health()
    for second in range(1, 6):
        made.probe_failed(second, Kind.REFUSED)
    for second in range(6, 12):
        made.probe_ok(second)
    assert made.state is State.READY
    assert made.allowance(100, 0) == FIRST


def test_a_member_that_was_only_slow_has_its_full_share_again() -> None:
    made = health()
    for second in range(1, 6):
        made.probe_failed(second, Kind.FIRST_BYTE)
    for second in range(6, 12):
        made.probe_ok(second)
    assert made.state is State.READY
    assert made.warm


def test_other_weights_make_a_ready_member_fresh() -> None:
    made = health()
    made.changed()
    assert made.allowance(100, 0) == FIRST
    made.tick(1.0)
    assert made.allowance(100, 0) == 2
    assert made.wake_at == 1.0 + STEP_S
    made.spare_no_more()
    assert made.allowance(100, 0) == 100


@pytest.mark.fault("S4")
def test_one_that_says_it_stays_is_back_at_the_second_good_probe() -> None:
    made = health()
    made.probe_failed(1.0, Kind.ELSEWHERE)
    assert made.away
    made.probe_ok(1.2)
    assert made.state is State.STARTING
    assert made.away
    made.probe_ok(1.4)
    assert made.state is State.READY
    assert not made.away
