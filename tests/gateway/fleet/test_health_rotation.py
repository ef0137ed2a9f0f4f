from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from gateway.fleet.evidence import Kind
from gateway.fleet.health import MemberHealth
from gateway.fleet.rotation import in_rotation
from gateway.settings.tree import Health


@dataclass
class Member:
    name: str
    health: MemberHealth


def member(name: str) -> Member:
    made = Member(name, MemberHealth(Health(), 0.0, Random(1)))
    made.health.probe_ok(0.0)
    return made


def by_probes(name: str, kind: Kind = Kind.BAD_STATUS) -> Member:
    made = member(name)
    for second in (2.0, 4.0, 6.0):
        made.health.probe_failed(second, kind)
    return made


def by_traffic(name: str, kind: Kind = Kind.BAD_STATUS) -> Member:
    made = member(name)
    for _ in range(5):
        made.health.traffic_failed(6.0, kind)
    return made


def by_stall(name: str) -> Member:
    made = member(name)
    for second in range(0, 24, 2):
        made.health.counters(float(second), 1, 1)
    return made


def on_trial(name: str) -> Member:
    made = by_traffic(name)
    made.health.tick(60.0)
    return made


def drained(name: str) -> Member:
    made = member(name)
    made.health.drain(1.0)
    return made


def uncertain(name: str) -> Member:
    made = member(name)
    made.health.doubt(1.0, "swap")
    return made


def gone(name: str) -> Member:
    made = member(name)
    made.health.remove(1.0)
    return made


def loading(name: str) -> Member:
    made = Member(name, MemberHealth(Health(), 0.0, Random(1)))
    made.health.probe_failed(2.0, Kind.BAD_STATUS)
    return made


def names(*members: Member) -> tuple[list[str], bool]:
    rotation = in_rotation(members)
    return [member.name for member in rotation.members], rotation.last_resort


def test_the_ready_and_those_on_trial_are_in_rotation_and_nobody_else() -> None:
    well = (member("a"), on_trial("b"))
    ejected = (by_probes("c"), by_traffic("d"), by_stall("e"))
    out = (drained("f"), uncertain("g"), gone("h"), loading("i"))
    assert names(*out, *ejected, *well) == (["a", "b"], False)


@pytest.mark.parametrize("kind", [Kind.BAD_STATUS, Kind.FIRST_BYTE, Kind.RESET])
def test_b4_when_all_are_ejected_the_last_ones_are_used_rather_than_none(kind: Kind) -> None:
    assert names(by_probes("a", kind), by_traffic("b", kind)) == (["a", "b"], True)


def test_b4_one_request_that_succeeds_makes_the_last_resort_an_ordinary_member() -> None:
    last = by_probes("a")
    last.health.traffic_ok(7.0)
    assert names(last, by_probes("b")) == (["a"], False)


@pytest.mark.parametrize("sort", [drained, uncertain, gone, loading])
def test_no_resort_is_so_last_that_these_are_used(sort: Callable[[str], Member]) -> None:
    assert names(sort("a")) == ([], False)
    assert names(sort("a"), by_probes("b")) == (["b"], True)


def test_b11_where_nobody_listens_requests_wait() -> None:
    assert names(by_probes("a", Kind.REFUSED), by_traffic("b", Kind.REFUSED)) == ([], False)


def test_where_nobody_listens_is_no_resort_while_another_is_reached() -> None:
    assert names(by_probes("a", Kind.REFUSED), by_traffic("b")) == (["b"], True)


def test_a_last_resort_that_is_refused_is_none_any_more_and_the_change_is_told() -> None:
    last = by_traffic("a", Kind.RESET)
    assert names(last) == (["a"], True)
    assert last.health.traffic_failed(7.0, Kind.REFUSED) is not None
    assert names(last) == ([], False)


def test_one_that_is_reached_again_is_a_last_resort_at_once_and_the_change_is_told() -> None:
    dead = by_probes("a", Kind.REFUSED)
    assert dead.health.probe_ok(8.0) is not None
    assert names(dead) == (["a"], True)


def test_a_frozen_engine_is_used_only_if_there_is_nothing_else() -> None:
    assert names(by_stall("a"), by_probes("b")) == (["b"], True)
    assert names(by_stall("a")) == (["a"], True)


def test_those_on_trial_get_ordinary_traffic_when_nobody_is_ready() -> None:
    assert names(on_trial("a"), by_probes("b")) == (["a", "b"], True)


def test_no_members_no_rotation() -> None:
    assert names() == ([], False)
