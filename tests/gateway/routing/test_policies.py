"""What holds for every policy."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from gateway.routing.contract import Hint
from gateway.routing.registry import POLICIES
from gateway.settings.tree import PolicyName
from tests.gateway.routing.fleets import NO_HINT, FakeMember, chooser, fleet, run

HINTS = st.builds(Hint, prefix=st.binary(max_size=8), session=st.text(max_size=4))
MEMBERS = st.builds(
    FakeMember,
    name=st.uuids().map(str),
    version=st.sampled_from(["v1", "v2"]),
    weight=st.floats(0.01, 100),
    in_flight=st.integers(0, 4),
    tokens=st.integers(0, 100),
    limit=st.integers(0, 4),
)


def test_every_policy_of_the_settings_is_there() -> None:
    assert set(POLICIES) == set(PolicyName)


@pytest.mark.parametrize("policy", PolicyName)
@given(data=st.data(), members=st.lists(MEMBERS, max_size=24), hints=st.lists(HINTS, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_who_is_full_or_excluded_is_never_chosen_and_somebody_is_if_anybody_can(
    policy: PolicyName, data: st.DataObject, members: list[FakeMember], hints: list[Hint]
) -> None:
    choose = chooser(policy, members)
    for hint in hints:
        excluded = data.draw(st.sets(st.sampled_from([m.name for m in members]))) if members else set()
        usable = [m for m in members if m.name not in excluded and m.in_flight < m.limit]
        chosen = choose(hint, excluded)
        if not usable:
            assert chosen is None
        else:
            assert chosen in usable
            chosen.in_flight += 1


@pytest.mark.parametrize("policy", PolicyName)
@pytest.mark.parametrize("count", [2, 3, 4, 16, 17, 100])
def test_equal_members_share_requests_without_a_hint_evenly(policy: PolicyName, count: int) -> None:
    members = fleet(count)
    outcome = run(members, chooser(policy, members), [NO_HINT] * (100 * count), at_a_time=3 * count)
    assert len(outcome.counts) == count
    assert max(outcome.counts.values()) <= 130
    assert min(outcome.counts.values()) >= 70


@pytest.mark.parametrize("policy", PolicyName)
def test_a_heavier_member_gets_more_under_load(policy: PolicyName) -> None:
    members = fleet(4)
    members[0].weight = 3.0
    hints = [Hint(prefix=b"%d" % index, session=str(index)) for index in range(3000)]
    outcome = run(members, chooser(policy, members), hints, at_a_time=60)
    assert outcome.counts["m0"] == pytest.approx(1500, rel=0.15)


@pytest.mark.parametrize("policy", PolicyName)
def test_e4_token_id_prompts_spread_over_four_members(policy: PolicyName) -> None:
    members = fleet(4)
    prompts = [b",".join(b"%d" % (token * number % 50_000) for token in range(64)) for number in range(1000)]
    outcome = run(members, chooser(policy, members), [Hint(prefix=prompt) for prompt in prompts], at_a_time=1)
    assert max(outcome.counts.values()) < 1.5 * 250


@pytest.mark.parametrize("policy", PolicyName)
def test_b6_a_member_on_trial_gets_its_one_request_under_every_policy(policy: PolicyName) -> None:
    members = fleet(4)
    members[2].limit = 1
    hints = [Hint(prefix=b"%d" % index, session=str(index)) for index in range(200)]
    outcome = run(members, chooser(policy, members), hints, at_a_time=40)
    assert outcome.counts["m2"] >= 1


@pytest.mark.parametrize("policy", PolicyName)
def test_a_fleet_that_changes_all_the_time_does_not_favour_its_first_members(policy: PolicyName) -> None:
    members = fleet(4)
    hits = [0, 0, 0, 0]
    for seed in range(400):
        hint = Hint(prefix=b"%d" % seed, session=str(seed))
        member = chooser(policy, members, seed)(hint)
        assert member is not None
        hits[int(member.name[1:])] += 1
    assert max(hits) < 160
