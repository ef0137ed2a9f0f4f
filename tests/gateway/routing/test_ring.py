from __future__ import annotations

import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from gateway.routing.contract import Candidate
from gateway.routing.ring import Ring, key_of
from tests.gateway.routing.fleets import FakeMember, fleet

KEYS = [key_of(b"user-%d" % index) for index in range(4000)]


def ring(members: list[FakeMember], load_factor: float = 1.25) -> Ring:
    return Ring(members, [member.name for member in members], load_factor)


def owners(of: Ring) -> list[str]:
    return [member.name for key in KEYS if (member := of.pick(key)) is not None]


@pytest.mark.parametrize("count", [2, 4, 10, 50])
def test_when_a_member_goes_only_its_own_keys_move(count: int) -> None:
    members = fleet(count)
    before = owners(ring(members))
    after = owners(ring(members[1:]))
    moved = [old for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"m0"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / count, rel=0.35)


@pytest.mark.parametrize("count", [2, 4, 10, 50])
def test_when_a_member_comes_it_takes_its_share_from_all(count: int) -> None:
    members = fleet(count)
    before = owners(ring(members[1:]))
    after = owners(ring(members))
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"m0"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / count, rel=0.35)


def test_the_order_of_the_members_does_not_matter() -> None:
    members = fleet(7)
    assert owners(ring(members)) == owners(ring(members[::-1]))


@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_shares_are_nearly_equal(count: int) -> None:
    names = owners(ring(fleet(count)))
    counts = [names.count(f"m{index}") for index in range(count)]
    assert max(counts) < 1.5 * len(KEYS) / count


def test_a_member_of_three_times_the_weight_has_three_times_the_keys() -> None:
    members = fleet(4)
    members[0].weight = 3.0
    assert owners(ring(members)).count("m0") / len(KEYS) == pytest.approx(0.5, rel=0.15)


def test_keys_are_the_same_in_every_process() -> None:
    code = "from gateway.routing.ring import key_of; print(key_of(b'a prompt'))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert int(printed.stdout) == key_of(b"a prompt")


@given(loads=st.lists(st.integers(0, 30), min_size=1, max_size=40), key=st.integers(0, (1 << 60) - 1))
@settings(deadline=None)
def test_whoever_is_picked_is_within_the_bound_and_somebody_is(loads: list[int], key: int) -> None:
    members = fleet(len(loads))
    for member, load in zip(members, loads, strict=True):
        member.in_flight = load
    chosen = ring(members).pick(key)
    assert chosen is not None
    assert chosen.in_flight + 1 <= 1.25 * (sum(loads) + 1) / len(loads) + 1


def test_a_key_overflows_to_the_same_second_member_each_time() -> None:
    members = fleet(8)
    made = ring(members)
    home = made.pick(KEYS[0])
    assert isinstance(home, FakeMember)
    home.in_flight = 100
    seconds = {member.name for _ in range(50) if (member := made.pick(KEYS[0])) is not None}
    assert len(seconds) == 1
    assert home.name not in seconds


def test_loads_of_a_large_fleet_are_noticed_within_a_few_choices() -> None:
    members = fleet(200)
    made = ring(members)
    home = made.pick(KEYS[0])
    assert isinstance(home, FakeMember)
    home.in_flight = 3
    assert made.pick(KEYS[0]) is not home, "the fleet is idle, so three are too many"
    for member in members:
        member.in_flight = 3
    for key in KEYS[:20]:
        made.pick(key)
    assert made.pick(KEYS[0]) is home, "everybody has three, so three are the mean"


def test_an_empty_ring_picks_nobody() -> None:
    assert ring([]).pick(KEYS[0]) is None


def test_more_members_than_a_ring_can_tell_apart_are_refused() -> None:
    members: list[Candidate] = [FakeMember("m")] * 65_536
    with pytest.raises(ValueError, match="at most 65535"):
        Ring(members, ["m"] * 65_536, 1.25)
