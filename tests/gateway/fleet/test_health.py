from __future__ import annotations

from math import inf
from random import Random

import pytest

from gateway.fleet.evidence import OWN_FAULTS, Cause, Kind
from gateway.fleet.health import MemberHealth
from gateway.fleet.states import State
from gateway.settings.tree import Health

OPTIONS = Health()
HARMLESS = sorted(set(Kind) - OWN_FAULTS - {Kind.ELSEWHERE})


def starting() -> MemberHealth:
    return MemberHealth(OPTIONS, 0.0, Random(1))


def ready() -> MemberHealth:
    health = starting()
    health.probe_ok(0.0)
    return health


def fail_probes(health: MemberHealth, now: float, kind: Kind = Kind.FIRST_BYTE, times: int = 3) -> float:
    for _ in range(times):
        now += 2.0
        health.probe_failed(now, kind)
    return now


def fail_requests(health: MemberHealth, now: float, kind: Kind = Kind.BAD_STATUS, times: int = 5) -> None:
    for _ in range(times):
        health.traffic_failed(now, kind)


# Coming and going by probes


def test_a_new_member_gets_nothing_until_its_first_good_probe() -> None:
    health = starting()
    assert not health.leasable
    change = health.probe_ok(1.0)
    assert health.leasable
    assert change is not None
    assert (change.at, change.before, change.after) == (1.0, State.STARTING, State.READY)
    assert (health.since, health.reason) == (1.0, "first good probe")


@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.BAD_STATUS])
def test_an_engine_that_loads_is_starting_not_broken_and_says_why(kind: Kind) -> None:
    health = starting()
    fail_probes(health, 0.0, kind, times=100)
    assert health.state is State.STARTING
    assert kind.value in health.reason
    health.probe_ok(300.0)
    assert health.leasable


def test_failed_probes_in_a_row_eject_and_good_ones_in_a_row_bring_back() -> None:
    health = ready()
    now = fail_probes(health, 0.0, times=2)
    assert health.state is State.READY
    change = health.probe_failed(now + 2, Kind.FIRST_BYTE, "no answer within 2 s")
    assert change is not None
    assert change.after is State.EJECTED
    assert "no answer within 2 s" in health.reason
    assert health.cause is Cause.PROBES
    assert health.probe_ok(now + 4) is None
    assert health.probe_ok(now + 6) is not None
    assert (health.state, health.cause) == (State.READY, None)


def test_a_good_probe_between_bad_ones_begins_the_count_anew() -> None:
    health = ready()
    for cycle in range(10):
        fail_probes(health, cycle * 10.0, times=2)
        health.probe_ok(cycle * 10.0 + 6)
    assert health.state is State.READY


def test_b3_slow_probes_are_outweighed_by_requests_that_succeed() -> None:
    health = ready()
    for second in range(0, 600, 5):
        health.traffic_ok(second + 1.0)
        assert health.probe_failed(second + 5.0, Kind.FIRST_BYTE) is None
    assert health.state is State.READY


def test_b3_slow_probes_are_outweighed_by_tokens_that_flow() -> None:
    health = ready()
    for second in range(0, 600, 5):
        health.flowing(second + 1.0)
        health.probe_failed(second + 5.0, Kind.FIRST_BYTE)
    assert health.state is State.READY


def test_success_before_the_first_failed_probe_does_not_save_a_dead_member() -> None:
    health = ready()
    health.traffic_ok(1.9)
    fail_probes(health, 0.0, times=3)
    assert health.state is State.EJECTED


def test_a_request_that_succeeds_brings_back_what_probes_ejected() -> None:
    health = ready()
    now = fail_probes(health, 0.0)
    change = health.traffic_ok(now + 1)
    assert change is not None
    assert change.after is State.READY


# Traffic


def test_b5_a_clients_faults_open_no_breaker() -> None:
    health = ready()
    for kind in HARMLESS:
        fail_requests(health, 1.0, kind, times=50)
    assert health.state is State.READY


def test_harmless_kinds_between_real_faults_do_not_reset_the_count() -> None:
    health = ready()
    for _ in range(5):
        health.traffic_failed(1.0, Kind.RESET)
        health.traffic_failed(1.0, Kind.CLIENT_ERROR)
    assert health.state is State.EJECTED


@pytest.mark.parametrize("kind", sorted(OWN_FAULTS))
def test_its_own_faults_in_a_row_eject_it(kind: Kind) -> None:
    health = ready()
    fail_requests(health, 1.0, kind, times=4)
    assert health.leasable
    change = health.traffic_failed(1.0, kind)
    assert change is not None
    assert change.after is State.EJECTED
    assert health.cause is Cause.TRAFFIC
    assert kind.value in health.reason
    assert kind.counts


def test_a_success_between_faults_begins_the_count_anew() -> None:
    health = ready()
    for _ in range(50):
        fail_requests(health, 1.0, times=4)
        health.traffic_ok(1.0)
    assert health.state is State.READY


def test_tokens_of_old_streams_do_not_hide_that_new_requests_fail() -> None:
    health = ready()
    for _ in range(5):
        health.flowing(1.0)
        health.traffic_failed(1.0, Kind.BAD_STATUS)
    assert health.state is State.EJECTED


def test_good_probes_do_not_bring_back_what_they_failed_to_notice() -> None:
    health = ready()
    fail_requests(health, 0.0, Kind.FIRST_BYTE)
    for second in (1.0, 2.0, 3.0, 4.0):
        assert health.probe_ok(second) is None
    assert health.state is State.EJECTED


def test_b6_after_the_breakers_time_a_trial_request_brings_it_back() -> None:
    health = ready()
    fail_requests(health, 0.0)
    assert 5.0 <= health.wake_at <= 6.0
    assert health.tick(4.9) is None
    wake_at = health.wake_at
    change = health.tick(wake_at)
    assert change is not None
    assert change.after is State.SUSPECT
    assert health.leasable
    assert health.wake_at == inf
    assert health.traffic_ok(wake_at + 1) is not None
    assert health.state is State.READY


def test_a_trial_lets_one_request_in_beside_those_that_still_run() -> None:
    health = ready()
    assert health.allowance(512, 40) == 512
    fail_requests(health, 0.0)
    health.tick(health.wake_at)
    assert health.allowance(512, 0) == 1
    assert health.allowance(512, 40) == 41
    assert health.allowance(16, 40) == 16


def test_a_trial_that_fails_ejects_it_for_longer() -> None:
    health = ready()
    fail_requests(health, 0.0)
    first = health.wake_at
    health.tick(first)
    change = health.traffic_failed(first + 1, Kind.BAD_STATUS)
    assert change is not None
    assert change.after is State.EJECTED
    assert health.wake_at - (first + 1) >= 10.0


def test_a_trial_that_says_nothing_leaves_it_on_trial() -> None:
    health = ready()
    fail_requests(health, 0.0)
    health.tick(health.wake_at)
    health.traffic_failed(10.0, Kind.CLIENT_GONE)
    health.traffic_failed(10.0, Kind.CLIENT_ERROR)
    assert health.state is State.SUSPECT


def test_b6_without_traffic_good_probes_end_the_trial() -> None:
    health = ready()
    fail_requests(health, 0.0)
    health.tick(health.wake_at)
    assert health.probe_ok(10.0) is None
    assert health.probe_ok(12.0) is not None
    assert health.state is State.READY


def test_b7_a_member_that_died_is_back_two_good_probes_after_it_answers() -> None:
    health = ready()
    fail_requests(health, 0.0, Kind.RESET)
    now = fail_probes(health, 0.0, Kind.REFUSED, times=30)
    assert health.tick(now) is None, "nobody listens: a trial would only lose a request"
    health.probe_ok(now + 2)
    assert health.probe_ok(now + 4) is not None
    assert health.state is State.READY


def test_one_good_probe_is_not_enough_after_the_trial_began() -> None:
    health = ready()
    fail_requests(health, 0.0)
    health.probe_ok(1.0)
    health.probe_ok(2.0)
    health.tick(health.wake_at)
    assert health.probe_ok(8.0) is None


# Stalls


def read(health: MemberHealth, start: float, stop: float, tokens: float | None, running: int | None) -> None:
    now = start
    while now <= stop:
        health.counters(now, tokens, running)
        now += 2.0


def test_b2_counters_that_stand_still_while_requests_run_eject() -> None:
    health = ready()
    read(health, 0.0, 18.0, tokens=100, running=3)
    assert health.state is State.READY
    read(health, 20.0, 22.0, tokens=100, running=3)
    assert (health.state, health.cause) == (State.EJECTED, Cause.STALL)
    assert "3 requests run" in health.reason


def test_b2_good_probes_do_not_bring_a_stalled_member_back() -> None:
    health = ready()
    read(health, 0.0, 22.0, tokens=100, running=3)
    for second in range(23, 60):
        health.probe_ok(float(second))
        health.tick(float(second))
    assert health.state is State.SUSPECT, "one request at a time may try it"


def test_a_stalled_member_is_back_when_its_counters_move() -> None:
    health = ready()
    read(health, 0.0, 22.0, tokens=100, running=3)
    change = health.counters(24.0, 101, 3)
    assert change is not None
    assert change.after is State.READY


def test_an_idle_engine_does_not_stall() -> None:
    health = ready()
    read(health, 0.0, 600.0, tokens=100, running=0)
    read(health, 602.0, 618.0, tokens=100, running=1)
    assert health.state is State.READY


def test_an_hour_without_a_reading_is_not_an_hour_without_a_token() -> None:
    health = ready()
    health.counters(0.0, 100, 1)
    health.counters(3600.0, 100, 1)
    assert health.state is State.READY


def test_tokens_that_reach_clients_outweigh_counters_that_stand_still() -> None:
    health = ready()
    for second in range(0, 100, 2):
        health.flowing(float(second))
        health.counters(float(second), 100, 3)
    assert health.state is State.READY


@pytest.mark.parametrize(("tokens", "running"), [(None, 3), (100, None), (None, None)])
def test_b12_missing_counters_are_ignored_and_reported(tokens: float | None, running: int | None) -> None:
    health = ready()
    read(health, 0.0, 100.0, tokens, running)
    assert health.state is State.READY
    assert health.counters_missing
    health.counters(102.0, 1, 0)
    assert not health.counters_missing


def test_counters_that_fall_show_a_new_process_not_a_stall() -> None:
    health = ready()
    read(health, 0.0, 18.0, tokens=100, running=3)
    read(health, 20.0, 36.0, tokens=5, running=3)
    assert health.state is State.READY


# Leaving


def test_a_member_that_leaves_gets_nothing_new_whatever_its_probes_say() -> None:
    health = ready()
    health.drain(1.0)
    assert not health.leasable
    for second in range(2, 60):
        health.probe_ok(float(second))
        health.traffic_ok(float(second))
    assert health.state is State.DRAINING


def test_a_drain_taken_back_needs_one_good_probe() -> None:
    health = ready()
    health.drain(1.0)
    assert health.resume(2.0) is not None
    assert not health.leasable
    health.probe_ok(3.0)
    assert health.leasable


def test_draining_and_resuming_twice_is_the_same_as_once() -> None:
    health = ready()
    assert health.drain(1.0) is not None
    assert health.drain(2.0) is None
    assert health.resume(3.0) is not None
    assert health.resume(4.0) is None
    assert health.resume(5.0) is None


@pytest.mark.parametrize("by_probe", [True, False])
def test_a_member_that_announces_to_leave_drains_at_once_and_is_not_broken(by_probe: bool) -> None:
    health = ready()
    change = (health.probe_failed if by_probe else health.traffic_failed)(1.0, Kind.ELSEWHERE)
    assert change is not None
    assert change.after is State.DRAINING
    assert health.cause is None


def test_a_member_that_announced_to_leave_and_stayed_comes_back_after_a_while() -> None:
    health = ready()
    health.traffic_failed(0.0, Kind.ELSEWHERE)
    for second in (1.0, 2.0, 3.0):
        health.probe_ok(second)
    health.traffic_failed(3.5, Kind.ELSEWHERE)
    for second in (4.0, 6.0, 8.0):
        health.probe_ok(second)
    assert health.state is State.DRAINING, "it said so again 4.5 s ago"
    health.probe_ok(10.0)
    health.probe_ok(12.0)
    assert health.state is State.READY


def test_evidence_about_a_member_that_is_gone_changes_nothing() -> None:
    health = ready()
    health.remove(1.0)
    assert health.remove(2.0) is None
    health.probe_ok(3.0)
    health.traffic_ok(3.0)
    fail_probes(health, 3.0)
    fail_requests(health, 9.0)
    health.counters(10.0, 1, 1)
    health.drain(11.0)
    health.doubt(11.0, "swap")
    health.tick(100.0)
    assert (health.state, health.since) == (State.GONE, 1.0)


# Swapping


def test_an_uncertain_member_is_out_until_proved_whatever_else_is_good() -> None:
    health = ready()
    health.doubt(1.0, "swap to v2")
    for second in range(2, 30):
        health.probe_ok(float(second))
        health.traffic_ok(float(second))
    assert not health.leasable
    assert health.proved(30.0) is not None
    assert health.leasable


def test_an_uncertain_member_that_was_drained_and_resumed_is_still_uncertain() -> None:
    health = ready()
    health.doubt(1.0, "swap to v2")
    health.drain(2.0)
    health.resume(3.0)
    health.probe_ok(4.0)
    health.probe_ok(5.0)
    assert health.state is State.UNCERTAIN


def test_a_member_drained_during_its_swap_does_not_come_back_by_proof() -> None:
    health = ready()
    health.doubt(1.0, "swap to v2")
    health.drain(2.0)
    assert health.proved(3.0) is None
    assert health.state is State.DRAINING
    health.resume(4.0)
    health.probe_ok(5.0)
    assert health.state is State.READY


def test_new_thresholds_hold_from_now_on() -> None:
    health = ready()
    health.options = Health(traffic_failures=1, unhealthy_after=1)
    health.traffic_failed(1.0, Kind.RESET)
    assert health.state is State.EJECTED
