"""A fleet whose members serve different weights: who gets what, and who is spared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from gateway.fleet.evidence import Kind
from gateway.fleet.fleet import Fleet
from gateway.fleet.split import Split
from gateway.observe.metrics import Metrics
from gateway.routing.contract import Hint
from gateway.settings.tree import PolicyName
from tests.gateway.fleets import fleet_of, metrics

V7, V8 = "v7-0a0a0a0a", "v8-0b0b0b0b"


@pytest.fixture
def counted() -> Iterator[Metrics]:
    with metrics() as found:
        yield found


def serving(counted: Metrics, *labels: str, policy: PolicyName = PolicyName.LEAST_LOAD) -> Fleet:
    """A member for each label, named a, b, c and so on."""
    fleet = fleet_of(counted, *(chr(97 + i) for i in range(len(labels))), policy=policy, limit=100)
    for member, label in zip(fleet.members, labels, strict=True):
        fleet.learn_version(member, label)
    return fleet


@pytest.mark.parametrize("policy", PolicyName)
def test_a_lease_at_a_version_is_on_a_member_that_serves_it(counted: Metrics, policy: PolicyName) -> None:
    fleet = serving(counted, V7, V8, V7, policy=policy)
    hint = Hint(b"prompt", "session")
    leased = Counter(
        lease.member.name for _ in range(40) if (lease := fleet.lease_at(V7, hint, 1)) is not None
    )
    assert leased.total() == 40
    assert leased.keys() == {"a", "c"}
    assert fleet.lease_at("v9-0c0c0c0c", hint, 1) is None
    assert fleet.lease_at(V8, hint, 1, tried=("b",)) is None


def test_a_fleet_of_one_version_is_plain(counted: Metrics) -> None:
    fleet = serving(counted, V7, V7)
    assert fleet.plain
    assert fleet.sole_version == V7.encode()
    fleet.learn_version(fleet.members[0], V8)
    assert not fleet.plain
    assert fleet.sole_version == b""
    fleet.learn_version(fleet.members[1], V8)
    assert fleet.plain
    fleet.divide(Split(stable=V8))
    assert not fleet.plain
    fleet.divide(None)
    assert fleet.plain


def test_members_of_one_version_share_the_chooser_of_all(counted: Metrics) -> None:
    fleet = serving(counted, V7, V7)
    hint = Hint()
    turns = [fleet.lease(hint, 1), fleet.lease_at(V7, hint, 1), fleet.lease(hint, 1)]
    assert [lease.member.name for lease in turns if lease is not None] in (["a", "b", "a"], ["b", "a", "b"])


def test_questions_move_to_the_newer_version_once(counted: Metrics) -> None:
    questions = [bytes((n, 255 - n, 17, 3, 0, 0, 0, n)) for n in range(256)]
    fleet = serving(counted, *(V7,) * 4)
    before = dict.fromkeys(questions, V7)
    for swapped, member in enumerate(fleet.members, 1):
        fleet.learn_version(member, V8)
        now = {question: fleet.parts.home_of(question) for question in questions}
        moved = sum(label == V8 for label in now.values())
        assert abs(moved - 64 * swapped) <= 2
        assert all(now[question] == V8 for question in questions if before[question] == V8)
        before = now


def test_a_member_that_took_other_weights_is_spared_while_others_can_work(counted: Metrics) -> None:
    fleet = serving(counted, V7, V7)
    fleet.learn_version(fleet.members[0], V8)
    assert [member.limit for member in fleet.members] == [1, 100]
    assert fleet.slots == 101
    fresh = fleet.members[0]
    for second in range(10):
        fleet.tick(float(second))
    assert fresh.limit == 100


def test_the_only_one_left_is_not_spared(counted: Metrics) -> None:
    fleet = serving(counted, V7, V7)
    fleet.learn_version(fleet.members[0], V8)
    fleet.note(fleet.members[1], fleet.members[1].health.probe_failed(1.0, Kind.ELSEWHERE))
    assert fleet.width == 1
    assert fleet.slots == 100


def test_a_candidate_that_is_alone_with_its_share_is_not_spared(counted: Metrics) -> None:
    fleet = serving(counted, V7, V7)
    fleet.divide(Split(V7, V8, 0.1))
    fleet.learn_version(fleet.members[0], V8)
    assert [member.limit for member in fleet.members] == [100, 100]


def test_growing_warmer_tells_of_more_room(counted: Metrics) -> None:
    fleet = serving(counted, V7, V7)
    fleet.learn_version(fleet.members[0], V8)
    seen: list[int] = []
    fleet.on_change = lambda: seen.append(fleet.slots)
    fresh = fleet.members[0]
    for _ in range(7):
        fleet.note(fresh, fresh.health.traffic_ok(1.0))
    assert seen == [102, 104, 108]
