"""Every rollout ends in one of its ends, and the fleet serves all the while."""

from __future__ import annotations

from collections import deque

import pytest

from backends.contract import PrepareStatus
from checkpoints.rollouts import Stage
from gateway.rollout.plan import begin, plan
from gateway.rollout.steps import Prepare, Save, Swap
from tests.gateway.rollout.world import CRASHES, DIES, GOOD, HANGS, OLD, PROBE, Machine, label, weights, world


def _stage(simulated: object) -> Stage:
    return simulated.record.stage  # type: ignore[attr-defined,no-any-return]


def test_a_published_version_comes_to_serve_everywhere_one_member_at_a_time() -> None:
    fleet = world(4)
    fleet.publish(1)
    fleet.run()
    assert fleet.stages == [
        Stage.VERIFYING,
        Stage.PREPARING,
        Stage.ROLLING,
        Stage.PROMOTING,
        Stage.PROMOTED,
    ]
    assert fleet.versions() == {label(1): 4}
    assert (fleet.serving, fleet.most_out, fleet.fewest) == (1, 1, 3)


def test_everybody_fetches_before_anybody_leaves_the_rotation() -> None:
    fleet = world(3)
    fleet.machine("c").fetch_s = 50
    fleet.publish(1)
    while not any(isinstance(step, Swap) for step in fleet.step().steps):
        fleet.advance(1)
    assert all(machine.preparing.ready for machine in fleet.machines if machine.preparing)
    assert fleet.steps["Prepare"] == 3


def test_as_many_members_leave_at_a_time_as_is_allowed() -> None:
    fleet = world(6, max_unavailable=2)
    fleet.publish(1)
    fleet.run()
    assert (fleet.most_out, fleet.fewest) == (2, 4)


def test_one_member_serves_on_whatever_is_allowed() -> None:
    fleet = world(3, max_unavailable=3)
    fleet.publish(1)
    fleet.run()
    assert fleet.fewest == 1


def test_an_only_member_changes_and_that_is_said() -> None:
    fleet = world(1)
    fleet.publish(1)
    told = []
    while fleet.record is None or fleet.record.active:
        told.append(fleet.step().next)
        fleet.advance(1)
    assert any("only member: requests wait" in sentence for sentence in told)
    assert fleet.versions() == {label(1): 1}


@pytest.mark.fault("S2")
def test_what_the_static_check_refuses_touches_no_engine_and_is_not_tried_again() -> None:
    fleet = world(3)
    fleet.refusals[1] = "tensor_missing: model.norm.weight"
    fleet.publish(1)
    fleet.run()
    assert fleet.stages == [Stage.VERIFYING, Stage.REFUSED]
    assert (fleet.steps["Swap"], fleet.steps["Prepare"]) == (0, 0)
    assert fleet.quarantined == {weights(1).digest: "tensor_missing: model.norm.weight"}
    fleet.advance(100)
    assert fleet.step().steps == ()


def test_what_a_member_refuses_while_fetching_touches_no_engine() -> None:
    fleet = world(3)
    fleet.machine("b").refuses = "digest_differs: model.safetensors"
    fleet.publish(1)
    fleet.run()
    assert _stage(fleet) is Stage.REFUSED
    assert fleet.steps["Swap"] == 0
    assert "b will not serve it: digest_differs" in fleet.record.reason


def test_a_fetch_that_fails_for_reasons_of_the_members_own_is_made_again() -> None:
    fleet = world(2)
    machine = fleet.machine("b")
    fleet.publish(1)
    while fleet.record is None or fleet.record.stage is not Stage.PREPARING:
        fleet.step()
    fleet.step()
    machine.preparing = PrepareStatus("v1", error="the store does not answer")
    assert [step for step in fleet.step().steps if isinstance(step, Prepare)] == [Prepare("b", 1)]
    machine.preparing = None
    fleet.run()
    assert fleet.versions() == {label(1): 2}


def test_a_member_that_an_operator_drained_does_not_hold_the_rollout() -> None:
    fleet = world(3)
    fleet.machine("b").drained = True
    fleet.publish(1)
    while fleet.record is None or fleet.record.active:
        fleet.step()
        fleet.advance(1)
        assert fleet.now < 2000
    assert fleet.record.stage is Stage.PROMOTED
    fleet.machine("b").drained = False
    fleet.run()
    assert fleet.versions() == {label(1): 3}


def test_a_member_whose_agent_has_no_store_is_left_as_it_is() -> None:
    fleet = world(3)
    fleet.machine("c").fixed = True
    fleet.publish(1)
    while fleet.record is None or fleet.record.active:
        fleet.step()
        fleet.advance(1)
    assert fleet.versions() == {label(1): 2, label(0): 1}
    assert fleet.record.evidence["without_agent"] == ["c"]


@pytest.mark.fault("S3")
def test_a_failed_probe_takes_the_version_back_everywhere() -> None:
    fleet = world(4)
    fleet.machine("c").fates = deque([PROBE])
    fleet.publish(1)
    fleet.run()
    assert fleet.stages[-2:] == [Stage.ROLLING_BACK, Stage.ROLLED_BACK]
    assert fleet.versions() == {label(0): 4}
    assert fleet.serving == 0
    assert fleet.quarantined == {weights(1).digest: "c: the probe failed: scale"}
    assert fleet.record.evidence["parity"]["passed"] is False


@pytest.mark.fault("S12")
def test_what_was_taken_back_is_not_tried_again_by_itself_even_under_another_number() -> None:
    fleet = world(2)
    fleet.machine("a").fates = deque([PROBE])
    fleet.publish(1)
    fleet.run()
    swaps = fleet.steps["Swap"]
    for _ in range(5):
        fleet.advance(60)
        assert fleet.step().steps == ()
    again = weights(2)
    fleet.quarantined[again.digest] = "the same bytes"
    fleet.publish(2)
    fleet.advance(1)
    assert fleet.step().steps == ()
    assert fleet.steps["Swap"] == swaps


@pytest.mark.fault("S3")
@pytest.mark.parametrize("fate", [OLD, DIES, CRASHES])
def test_a_member_that_fails_once_is_tried_once_more(fate: str) -> None:
    fleet = world(3)
    fleet.machine("b").fates = deque([fate, GOOD])
    fleet.publish(1)
    fleet.run()
    assert _stage(fleet) is Stage.PROMOTED
    assert fleet.versions() == {label(1): 3}


@pytest.mark.fault("S3")
@pytest.mark.parametrize("fate", [OLD, DIES, HANGS])
def test_a_member_that_fails_again_takes_the_version_back(fate: str) -> None:
    fleet = world(3)
    fleet.machine("b").fates = deque([fate] * 2)
    fleet.publish(1)
    fleet.run()
    assert _stage(fleet) is Stage.ROLLED_BACK
    assert fleet.versions() == {label(0): 3}
    assert fleet.fewest >= 1


def test_as_many_members_may_fail_as_is_allowed() -> None:
    fleet = world(5, max_failed_members=2)
    fleet.machine("b").fates = deque([OLD] * 2)
    fleet.publish(1)
    fleet.run()
    assert _stage(fleet) is Stage.PROMOTED
    assert fleet.record.evidence["failed"] == ["b"]
    assert fleet.versions() == {label(1): 5}  # afterwards it was brought to what is served


def test_a_member_whose_agent_dies_at_every_swap_does_not_hold_the_rollout_for_ever() -> None:
    fleet = world(3, member_deadline_s=60, wait_s=5)
    fleet.machine("b").fates = deque([CRASHES] * 1000)
    fleet.publish(1)
    while fleet.record is None or fleet.record.active:
        fleet.step()
        fleet.advance(1)
        assert fleet.now < 20_000
    assert fleet.record.stage in (Stage.ROLLED_BACK, Stage.PROMOTED)


def test_a_member_that_is_away_is_waited_for_a_while_and_then_left() -> None:
    fleet = world(3)
    fleet.kill(fleet.machine("b"))
    fleet.publish(1)
    fleet.run()
    assert _stage(fleet) is Stage.PROMOTED
    assert fleet.record.evidence["not_reached"] == ["b"]
    fleet.revive(fleet.machine("b"))
    fleet.run()
    assert fleet.versions() == {label(1): 3}


@pytest.mark.fault("S4")
def test_a_member_that_comes_back_on_old_weights_is_brought_to_what_is_served() -> None:
    fleet = world(3)
    fleet.publish(1)
    fleet.run()
    fleet.machine("b").version = label(0)
    fleet.machine("b").swap = None
    fleet.run()
    assert fleet.versions() == {label(1): 3}
    assert fleet.machine("b").orders[-1].version == 1


def test_a_member_that_comes_new_in_the_middle_takes_the_version_too() -> None:
    fleet = world(3)
    fleet.publish(1)
    while fleet.record is None or fleet.record.stage is not Stage.ROLLING:
        fleet.step()
        fleet.advance(1)
    fleet.machines.append(Machine("d"))
    fleet.run()
    assert fleet.versions() == {label(1): 4}


def test_a_member_without_an_agent_is_left_as_it_is_and_named() -> None:
    fleet = world(3)
    fleet.machine("c").agent = False
    fleet.publish(1)
    told = []
    while fleet.record is None or fleet.record.active:
        told.append(fleet.step().next)
        fleet.advance(1)
    assert any("without an agent, left as they are: c" in sentence for sentence in told)
    assert fleet.versions() == {label(1): 2, label(0): 1}
    assert fleet.record.evidence["without_agent"] == ["c"]


def test_without_any_agent_nothing_begins() -> None:
    fleet = world(2)
    for machine in fleet.machines:
        machine.agent = False
    fleet.publish(1)
    assert fleet.step().steps == ()


def test_a_newer_version_supersedes_one_that_nobody_serves_yet() -> None:
    fleet = world(3)
    fleet.publish(1)
    while fleet.record is None or fleet.record.stage is not Stage.PREPARING:
        fleet.step()
    fleet.publish(2)
    fleet.run()
    assert fleet.stages[:4] == [Stage.VERIFYING, Stage.PREPARING, Stage.SUPERSEDED, Stage.VERIFYING]
    assert fleet.versions() == {label(2): 3}
    assert all(order.version == 2 for machine in fleet.machines for order in machine.orders)


def test_what_rolls_is_finished_before_the_newest_follows() -> None:
    fleet = world(4)
    fleet.publish(1)
    while fleet.record is None or fleet.record.stage is not Stage.ROLLING:
        fleet.step()
        fleet.advance(1)
    fleet.publish(2)
    fleet.publish(3)
    fleet.run()
    assert Stage.SUPERSEDED not in fleet.stages
    assert [order.version for order in fleet.machine("a").orders] == [1, 3]


def test_a_publisher_faster_than_every_fetch_does_not_keep_all_from_serving() -> None:
    fleet = world(3)
    for machine in fleet.machines:
        machine.fetch_s = 30
    for number in range(1, 60):
        fleet.publish(number)
        for _ in range(5):
            fleet.step()
            fleet.advance(1)
    assert fleet.serving > 0


def test_nothing_begins_by_itself_where_that_is_not_wanted() -> None:
    fleet = world(2, auto=False)
    fleet.publish(1)
    assert fleet.step().steps == ()
    fleet.record = begin(fleet.view(), weights(1), mode="rolling", forced=False, reason="by hand")
    fleet.record = None
    fleet.save(begin(fleet.view(), weights(1), mode="rolling", forced=False, reason="by hand"))
    fleet.run()
    assert fleet.versions() == {label(1): 2}


def test_an_older_version_rolled_out_by_hand_stays() -> None:
    fleet = world(2)
    fleet.publish(1)
    fleet.run()
    fleet.publish(2)
    fleet.run()
    fleet.save(begin(fleet.view(), weights(1), mode="rolling", forced=True, reason="by hand"))
    fleet.run()
    fleet.advance(100)
    assert fleet.step().steps == ()
    assert fleet.versions() == {label(1): 2}
    fleet.publish(3)
    fleet.run()
    assert fleet.versions() == {label(3): 2}


def test_the_base_model_can_be_gone_back_to() -> None:
    fleet = world(2)
    fleet.publish(1)
    fleet.run()
    fleet.save(begin(fleet.view(), weights(0), mode="rolling", forced=True, reason="by hand"))
    fleet.run()
    assert (fleet.serving, fleet.versions()) == (0, {label(0): 2})


@pytest.mark.fault("S10")
def test_a_plan_that_is_performed_twice_or_by_two_leaders_does_no_harm() -> None:
    fleet = world(4)
    fleet.publish(1)
    while not fleet.at_rest() or fleet.record is None:
        first, second = plan(fleet.view()), plan(fleet.view())
        assert first == second
        fleet.perform(first.steps)
        fleet.perform(first.steps)
        fleet.perform(second.steps)
        fleet.advance(1)
        assert fleet.now < 5000
    assert fleet.versions() == {label(1): 4}
    assert fleet.fewest == 3
    assert [len(machine.orders) for machine in fleet.machines] == [1, 1, 1, 1]


def test_nobody_is_asked_to_fetch_what_it_fetches() -> None:
    fleet = world(2)
    fleet.publish(1)
    fleet.machine("a").fetch_s = 1000
    for _ in range(50):
        made = fleet.step()
        fleet.advance(1)
    assert not any(isinstance(step, Prepare | Save) for step in made.steps)
    assert fleet.steps["Prepare"] == 2
