from __future__ import annotations

from collections import Counter

import pytest

from gateway.routing.least_load import DRAWN, SCANNED
from gateway.settings.tree import PolicyName
from tests.gateway.routing.fleets import NO_HINT, FakeMember, chooser, chosen_names, fleet, run

LEAST_LOAD = PolicyName.LEAST_LOAD


def test_the_member_with_the_fewest_requests_is_chosen() -> None:
    members = fleet(4)
    for member, load in zip(members, (3, 1, 2, 5), strict=True):
        member.in_flight = load
    assert set(chosen_names(chooser(LEAST_LOAD, members), [NO_HINT] * 10)) == {"m1"}


def test_load_is_measured_against_weight() -> None:
    members = [FakeMember("small", in_flight=2), FakeMember("large", weight=4.0, in_flight=6)]
    assert chosen_names(chooser(LEAST_LOAD, members), [NO_HINT]) == ["large"]


def test_of_equals_the_one_with_fewer_tokens_is_chosen() -> None:
    members = fleet(3)
    for member, tokens in zip(members, (300, 100, 200), strict=True):
        member.tokens = tokens
    assert set(chosen_names(chooser(LEAST_LOAD, members), [NO_HINT] * 10)) == {"m1"}


@pytest.mark.parametrize("count", [2, 3, SCANNED])
def test_idle_members_take_turns(count: int) -> None:
    counts = Counter(chosen_names(chooser(LEAST_LOAD, fleet(count)), [NO_HINT] * (10 * count)))
    assert set(counts.values()) == {10}
    assert len(counts) == count


def test_idle_members_take_turns_beside_a_busy_one() -> None:
    members = fleet(4)
    members[0].in_flight = 9
    counts = Counter(chosen_names(chooser(LEAST_LOAD, members), [NO_HINT] * 30))
    assert counts == {"m1": 10, "m2": 10, "m3": 10}


def test_a6_long_requests_on_one_member_send_the_next_ones_to_the_other() -> None:
    members = fleet(2)
    members[0].in_flight = 10
    choose = chooser(LEAST_LOAD, members)
    for _ in range(10):
        member = choose(NO_HINT)
        assert isinstance(member, FakeMember)
        assert member.name == "m1"
        member.in_flight += 1


@pytest.mark.parametrize("count", [SCANNED + 1, 100, 1000])
def test_drawing_a_few_of_many_keeps_the_fullest_near_the_mean(count: int) -> None:
    members = fleet(count)
    choose = chooser(LEAST_LOAD, members)
    for _ in range(10 * count):
        member = choose(NO_HINT)
        assert isinstance(member, FakeMember)
        member.in_flight += 1
    assert max(member.in_flight for member in members) <= 10 + 2


def test_a_large_fleet_is_not_looked_at_whole() -> None:
    """What a choice costs is how many members it asks for their load."""
    asked = 0

    class Asked(FakeMember):
        @property
        def in_flight(self) -> int:  # type: ignore[override]
            nonlocal asked
            asked += 1
            return 0

        @in_flight.setter
        def in_flight(self, load: int) -> None: ...

    choose = chooser(LEAST_LOAD, [Asked(f"m{index}") for index in range(1000)])
    for _ in range(100):
        choose(NO_HINT)
    assert asked <= 100 * DRAWN


def test_the_one_member_with_room_among_a_thousand_is_found() -> None:
    members = fleet(1000)
    for member in members:
        member.limit = 0
    members[567].limit = 1
    assert chosen_names(chooser(LEAST_LOAD, members), [NO_HINT]) == ["m567"]


def test_weights_count_among_many_as_well() -> None:
    members = fleet(100)
    for member in members[:50]:
        member.weight = 3.0
    outcome = run(members, chooser(LEAST_LOAD, members), [NO_HINT] * 20_000, at_a_time=1000)
    heavy = sum(outcome.counts[member.name] for member in members[:50])
    assert heavy == pytest.approx(15_000, rel=0.05)
