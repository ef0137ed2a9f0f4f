from __future__ import annotations

from collections import Counter

import pytest

from gateway.settings.tree import PolicyName
from tests.gateway.routing.fleets import NO_HINT, FakeMember, chooser, chosen_names, fleet

POWER_OF_TWO = PolicyName.POWER_OF_TWO


def test_of_two_members_always_the_less_loaded_is_chosen() -> None:
    members = fleet(2)
    members[0].in_flight = 1
    assert set(chosen_names(chooser(POWER_OF_TWO, members), [NO_HINT] * 200)) == {"m1"}


def test_the_fullest_member_is_never_chosen_and_every_other_is() -> None:
    members = fleet(5)
    members[3].in_flight = 1
    assert set(chosen_names(chooser(POWER_OF_TWO, members), [NO_HINT] * 500)) == {"m0", "m1", "m2", "m4"}


@pytest.mark.parametrize("count", [3, 10, 1000])
def test_the_fullest_stays_within_a_few_requests_of_the_mean(count: int) -> None:
    members = fleet(count)
    choose = chooser(POWER_OF_TWO, members)
    for _ in range(20 * count):
        member = choose(NO_HINT)
        assert isinstance(member, FakeMember)
        member.in_flight += 1
    assert max(member.in_flight for member in members) <= 20 + 4


def test_idle_members_are_chosen_in_proportion_to_their_weights() -> None:
    members = fleet(10)
    members[0].weight = 5.0
    counts = Counter(chosen_names(chooser(POWER_OF_TWO, members), [NO_HINT] * 14_000))
    assert counts["m0"] == pytest.approx(5000, rel=0.15)
    assert counts["m7"] == pytest.approx(1000, rel=0.2)


def test_weights_that_differ_without_measure_leave_nobody_out() -> None:
    members = fleet(3)
    members[0].weight = 1e9
    members[1].weight = 1e-9
    members[0].in_flight = members[0].limit
    choose = chooser(POWER_OF_TWO, members)
    assert set(chosen_names(choose, [NO_HINT] * 10)) <= {"m1", "m2"}
