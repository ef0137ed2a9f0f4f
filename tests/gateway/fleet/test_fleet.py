"""Members come and go, are leased and given back, and their counts stay true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.fleet.evidence import Kind
from gateway.fleet.fleet import Fleet, FleetOptions
from gateway.fleet.member import UNVERSIONED, Lease
from gateway.fleet.states import State
from gateway.observe.metrics import Metrics
from gateway.routing.contract import Hint
from gateway.settings.tree import Health, PolicyName, Routing
from tests.gateway.fleets import fleet_of, metrics, see_well, spec


@pytest.fixture
def counted() -> Iterator[Metrics]:
    with metrics() as made:
        yield made


def take(fleet: Fleet, *tried: str) -> Lease:
    lease = fleet.lease(Hint(), 10, tried)
    assert lease is not None
    return lease


def states(fleet: Fleet) -> list[State]:
    return [member.health.state for member in fleet.members]


def test_a_lease_gives_back_once_however_often_it_is_asked_to(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a")
    (member,) = fleet.members
    first, second = take(fleet), take(fleet)
    assert (member.in_flight, member.tokens, member.requests) == (2, 20, 2)
    for _ in range(3):
        first.release()
    assert (member.in_flight, member.tokens) == (1, 10)
    second.release()
    assert (member.in_flight, member.tokens, member.requests) == (0, 0, 2)
    assert repr(first) == "<Lease a released>"


@pytest.mark.parametrize("policy", list(PolicyName))
def test_a_member_at_its_limit_gets_nothing(counted: Metrics, policy: PolicyName) -> None:
    fleet = fleet_of(counted, "a", "b", limit=2, policy=policy)
    leases = [take(fleet) for _ in range(4)]
    assert fleet.lease(Hint(), 1) is None
    leases[0].release()
    assert take(fleet).member is leases[0].member


@pytest.mark.parametrize("policy", list(PolicyName))
def test_a_member_that_was_tried_is_not_tried_again(counted: Metrics, policy: PolicyName) -> None:
    fleet = fleet_of(counted, "a", "b", policy=policy)
    assert take(fleet, "a").member.name == "b"
    assert fleet.lease(Hint(b"prefix", "session"), 1, ("a", "b")) is None


def test_members_that_stay_keep_their_counts(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    a, b = fleet.members
    lease = take(fleet, "b")
    came, went = fleet.apply([spec("a"), spec("c")], 1.0)
    assert ([member.name for member in came], went) == (["c"], [b])
    assert fleet.members[0] is a
    assert a.in_flight == 1
    lease.release()


def test_a_member_that_leaves_gets_nothing_new_and_ends_what_it_has(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    gone = fleet.members[0]
    lease = take(fleet, "b")
    fleet.apply([spec("b")], 1.0)
    assert (gone.retired, gone.health.state, gone.in_flight) == (True, State.GONE, 1)
    assert all(take(fleet).member.name == "b" for _ in range(3))
    lease.release()
    assert gone.in_flight == 0


def test_one_that_comes_again_under_its_address_starts_from_nothing(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a")
    old = fleet.members[0]
    lease = take(fleet)
    fleet.apply([], 1.0)
    assert not fleet.ready
    fleet.apply([spec("a")], 2.0)
    new = fleet.members[0]
    assert new is not old
    assert (new.in_flight, new.health.state) == (0, State.STARTING)
    see_well(fleet, 2.0)
    again = take(fleet)
    lease.release()
    assert (old.in_flight, new.in_flight) == (0, 1)
    again.release()


def test_another_address_or_weight_makes_another_member(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    a, b = fleet.members
    fleet.apply([spec("a", port=8001), spec("b", weight=2.0)], 1.0)
    assert a.retired and b.retired


def test_room_is_what_members_in_rotation_may_have_and_what_hangs_elsewhere(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b", limit=4)
    leases = [take(fleet, "b") for _ in range(3)]
    assert fleet.slots == 8
    a = fleet.members[0]
    fleet.note(a, a.health.drain(1.0))
    assert fleet.slots == 4 + 3
    fleet.apply([spec("b")], 2.0)
    assert fleet.slots == 4 + 3
    leases[0].release()
    assert fleet.slots == 4 + 2
    fleet.apply([], 3.0)
    assert fleet.slots == 0


def test_a_member_on_trial_gets_one_request(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    a = fleet.members[0]
    for _ in range(5):
        fleet.note(a, a.health.traffic_failed(1.0, Kind.BAD_STATUS))
    assert states(fleet) == [State.EJECTED, State.READY]
    fleet.tick(60.0)
    assert states(fleet) == [State.SUSPECT, State.READY]
    taken = [take(fleet) for _ in range(5)]
    assert [lease.member for lease in taken].count(a) == 1
    fleet.note(a, a.health.traffic_ok(61.0))
    assert a.limit == 4


def test_whoever_waits_on_a_faulty_member_is_told(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    told: list[str] = []
    changes: list[bool] = []
    fleet.on_ejected = lambda member: told.append(member.name)
    fleet.on_change = lambda: changes.append(fleet.ready)
    a = fleet.members[0]
    for _ in range(3):
        fleet.note(a, a.health.probe_failed(1.0, Kind.FIRST_BYTE))
    assert (told, changes) == (["a"], [True])


def test_the_last_members_are_used_with_their_ordinary_limits(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a")
    a = fleet.members[0]
    for _ in range(3):
        fleet.note(a, a.health.probe_failed(1.0, Kind.BAD_STATUS))
    assert states(fleet) == [State.EJECTED]
    assert (fleet.ready, fleet.slots) == (True, 4)


def test_where_nobody_listens_requests_wait_instead(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a")
    a = fleet.members[0]
    for _ in range(3):
        fleet.note(a, a.health.probe_failed(1.0, Kind.REFUSED))
    assert (fleet.ready, fleet.slots) == (False, 0)


def test_evidence_about_a_member_that_has_gone_changes_nothing(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    gone = fleet.members[0]
    fleet.apply([spec("b")], 1.0)
    for _ in range(9):
        fleet.note(gone, gone.health.traffic_failed(2.0, Kind.RESET))
        fleet.note(gone, gone.health.probe_ok(2.0))
    assert gone.health.state is State.GONE
    assert states(fleet) == [State.READY]


def test_new_options_reach_members_that_are_there(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", limit=4)
    lease = take(fleet)
    options = FleetOptions(Routing(policy=PolicyName.ROUND_ROBIN), Health(traffic_failures=1), 9, 0.5)
    fleet.reconfigure(options)
    a = fleet.members[0]
    assert (a.limit, a.pool.connect_s, a.in_flight, fleet.slots) == (9, 0.5, 1, 9)
    fleet.note(a, a.health.traffic_failed(1.0, Kind.RESET))
    assert states(fleet) == [State.EJECTED]
    lease.release()


def test_the_versions_of_members_in_rotation_are_shown_once(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a", "b")
    for member in fleet.members:
        fleet.learn_version(member, "v1")
    assert fleet.versions == ["v1"]
    fleet.learn_version(fleet.members[1], "v2")
    assert fleet.versions == ["v1", "v2"]


def test_a_member_that_names_no_version_any_more_has_none(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a")
    fleet.learn_version(fleet.members[0], "v1")
    fleet.learn_version(fleet.members[0], "")
    assert fleet.versions == [UNVERSIONED]


def test_a_fleet_answers_to_its_own_name_and_to_those_of_its_members(counted: Metrics) -> None:
    fleet = fleet_of(counted, "a")
    told: list[set[str]] = []
    fleet.on_names = lambda: told.append(fleet.names)
    fleet.learn_names(fleet.members[0], ("llama", "adapter"))
    assert told == [{"small", "llama", "adapter"}]
