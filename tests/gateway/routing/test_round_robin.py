from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.settings.tree import PolicyName
from tests.gateway.routing.fleets import NO_HINT, FakeMember, chooser, chosen_names, fleet

ROUND_ROBIN = PolicyName.ROUND_ROBIN


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_each_has_its_turn_before_anybody_has_a_second(count: int) -> None:
    choose = chooser(ROUND_ROBIN, fleet(count))
    for _ in range(3):
        assert len(set(chosen_names(choose, [NO_HINT] * count))) == count


@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 100))
def test_shares_are_exact_to_within_a_request(weights: list[int], seed: int) -> None:
    members = [FakeMember(f"m{index}", weight=weight) for index, weight in enumerate(weights)]
    counts = Counter(chosen_names(chooser(ROUND_ROBIN, members, seed), [NO_HINT] * (10 * sum(weights))))
    for member in members:
        assert abs(counts[member.name] - 10 * member.weight) <= 2


def test_s11_one_in_a_thousand_gets_exactly_its_share_of_ten_thousand() -> None:
    members = [FakeMember("stable", weight=999), FakeMember("canary", weight=1)]
    counts = Counter(chosen_names(chooser(ROUND_ROBIN, members), [NO_HINT] * 10_000))
    assert counts["canary"] == 10


def test_turns_of_a_heavy_member_are_spread_not_bunched() -> None:
    members = [FakeMember("heavy", weight=5), FakeMember("light", weight=1), FakeMember("other", weight=1)]
    order = chosen_names(chooser(ROUND_ROBIN, members), [NO_HINT] * 700)
    turns = [at for at, name in enumerate(order) if name == "light"]
    gaps = [second - first for first, second in pairwise(turns)]
    assert min(gaps) >= 5
    assert max(gaps) <= 9


def test_the_turns_of_an_excluded_member_go_to_all_others_alike() -> None:
    choose = chooser(ROUND_ROBIN, fleet(5))
    counts = Counter(member.name for _ in range(400) if (member := choose(NO_HINT, {"m2"})) is not None)
    assert counts == {"m0": 100, "m1": 100, "m3": 100, "m4": 100}


def test_a_member_that_was_full_does_not_catch_up_in_a_burst() -> None:
    members = fleet(4)
    choose = chooser(ROUND_ROBIN, members)
    members[1].limit = 0
    chosen_names(choose, [NO_HINT] * 1000)
    members[1].limit = 100
    counts = Counter(chosen_names(choose, [NO_HINT] * 40))
    assert counts["m1"] in (9, 10, 11)


def test_a_retry_elsewhere_costs_the_excluded_member_no_turn() -> None:
    members = fleet(3)
    choose = chooser(ROUND_ROBIN, members)
    counts: Counter[str] = Counter()
    random = Random(5)
    for _ in range(3000):
        first = choose(NO_HINT)
        assert first is not None
        counts[first.name] += 1
        if random.random() < 0.1:
            second = choose(NO_HINT, {first.name})
            assert second is not None
            counts[second.name] += 1
    assert max(counts.values()) - min(counts.values()) <= 3
