"""Which version a request goes to, by wish and by split, as members come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from gateway.errors import VersionNotFound
from gateway.fleet.evidence import Kind
from gateway.fleet.fleet import Fleet
from gateway.fleet.split import Split, read_wish
from gateway.flow.aim import Aim, settle, take_aim
from gateway.observe.metrics import Metrics
from tests.gateway.fleets import fleet_of, metrics

V7, V8, V9 = "v7-0a0a0a0a", "v8-0b0b0b0b", "v9-0c0c0c0c"


@pytest.fixture
def counted() -> Iterator[Metrics]:
    with metrics() as found:
        yield found


def serving(counted: Metrics, *labels: str, split: Split | None = None) -> Fleet:
    fleet = fleet_of(counted, *(chr(97 + i) for i in range(len(labels))))
    for member, label in zip(fleet.members, labels, strict=True):
        fleet.learn_version(member, label)
    fleet.divide(split)
    return fleet


def leave(fleet: Fleet, *labels: str) -> None:
    for member in fleet.members:
        if member.version in labels:
            fleet.note(member, member.health.probe_failed(1.0, Kind.ELSEWHERE))


def aimed(fleet: Fleet, version: str = "", least: str = "", sticky: bytes = b"") -> Aim:
    return take_aim(fleet, read_wish(version.encode(), least.encode()), sticky)


@pytest.mark.fault("S11")
@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.001, 10), (0.1, 1000), (1.0, 10_000)])
def test_the_candidate_gets_its_exact_share(counted: Metrics, share: float, expected: int) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, share))
    got = Counter(aimed(fleet).label for _ in range(10_000))
    assert got[V8] == expected
    assert got[V7] == 10_000 - expected


@pytest.mark.fault("S11")
def test_a_candidate_without_members_is_stood_in_for_visibly(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.5))
    leave(fleet, V8)
    aims = [aimed(fleet) for _ in range(10)]
    assert {aim.label for aim in aims} == {V7}
    assert sum(aim.taken_over for aim in aims) == 5


@pytest.mark.fault("S11")
def test_a_candidate_with_no_share_stands_in_for_nobody(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.0))
    leave(fleet, V7)
    assert aimed(fleet).label == ""


def test_a_candidate_with_a_share_stands_in_for_the_stable_one(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.1))
    leave(fleet, V7)
    aim = aimed(fleet)
    assert aim.label == V8
    assert aim.taken_over


def test_while_all_change_at_once_requests_wait_for_the_stable_one(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V8, atomic=True))
    assert aimed(fleet).label == V8
    leave(fleet, V8)
    waiting = aimed(fleet)
    assert waiting.label == ""
    assert waiting.patient(fleet)


def test_a_third_version_gets_only_what_asks_for_it(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, V9, split=Split(V7, V8, 0.5))
    assert V9 not in {aimed(fleet).label for _ in range(100)}
    assert aimed(fleet, "v9").label == V9


def test_a_split_without_a_stable_version_means_whatever_else_is_there(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(None, V8, 0.5))
    assert Counter(aimed(fleet).label for _ in range(10)) == {V7: 5, V8: 5}


def test_wishes_do_not_count_towards_the_share(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.1))
    for _ in range(50):
        aimed(fleet, "candidate")
        aimed(fleet, "v7")
    assert Counter(aimed(fleet).label for _ in range(100)) == {V7: 90, V8: 10}


@pytest.mark.parametrize(
    ("version", "least", "label"),
    [("7", "", V7), ("v8", "", V8), (V8, "", V8), ("candidate", "", V8), ("serving", "", V7), ("", "8", V8)],
)
def test_a_wish_is_heard_whatever_the_split(counted: Metrics, version: str, least: str, label: str) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.5))
    assert {aimed(fleet, version, least).label for _ in range(5)} == {label}


def test_among_versions_that_are_new_enough_the_stable_one_answers(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.1))
    assert {aimed(fleet, "", "7").label for _ in range(20)} == {V7}


@pytest.mark.parametrize("version", ["6", "v7-ffffffff", "candidate", "unheard-of"])
def test_a_version_that_nobody_has_is_an_error_that_names_those_there_are(
    counted: Metrics, version: str
) -> None:
    fleet = serving(counted, V7)
    with pytest.raises(VersionNotFound, match=V7):
        aimed(fleet, version)


def test_a_version_that_is_out_of_rotation_is_waited_for(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8)
    leave(fleet, V8)
    aim = aimed(fleet, "v8")
    assert aim.label == ""
    assert not aim.patient(fleet)


def test_a_version_that_is_not_published_yet_is_waited_for_if_it_is_the_least(counted: Metrics) -> None:
    fleet = serving(counted, V7)
    aim = aimed(fleet, "", "8")
    assert aim.label == ""
    assert aim.patient(fleet)
    fleet.learn_version(fleet.members[0], V9)
    settle(aim, fleet)
    assert aim.label == V9
    assert aim.admits(V9)
    assert not aim.admits(V7)


def test_one_who_waited_for_a_split_that_has_ended_goes_where_there_is_room(counted: Metrics) -> None:
    fleet = serving(counted, V7, split=Split(V8, atomic=True))
    aim = aimed(fleet)
    assert aim.label == ""
    fleet.divide(None)
    settle(aim, fleet)
    assert aim.label == V7


def test_whoever_asked_for_the_candidate_does_not_get_what_is_candidate_no_more(counted: Metrics) -> None:
    fleet = serving(counted, V7, V8, split=Split(V7, V8, 0.1))
    aim = aimed(fleet, "candidate")
    assert not aim.admits(V7)
    fleet.divide(Split(V7))
    with pytest.raises(VersionNotFound):
        settle(aim, fleet)
