"""An operator steers a rollout by changing its record; whoever leads carries it out."""

from __future__ import annotations

import pytest

from checkpoints.rollouts import Stage
from gateway.rollout import commands
from tests.gateway.rollout.world import label, weights, world


def test_paused_sends_nobody_on_and_resumed_goes_on() -> None:
    fleet = world(4)
    fleet.publish(1)
    while fleet.steps["Swap"] == 0:
        fleet.step()
        fleet.advance(1)
    fleet.save(commands.pause(fleet.record, by="op"))
    for _ in range(50):
        assert fleet.step().steps == ()
        fleet.advance(1)
    assert fleet.versions()[label(1)] == 1
    fleet.save(commands.resume(fleet.record, by="op"))
    fleet.run()
    assert fleet.versions() == {label(1): 4}


@pytest.mark.parametrize("stage", [Stage.VERIFYING, Stage.PREPARING, Stage.ROLLING, Stage.PROMOTING])
def test_an_operator_takes_back_at_any_stage(stage: Stage) -> None:
    fleet = world(3)
    fleet.publish(1)
    while fleet.record is None or fleet.record.stage is not stage:
        fleet.step()
        fleet.advance(1)
    fleet.save(commands.take_back(fleet.record, by="op", now=fleet.now))
    fleet.run()
    assert fleet.record.stage in (Stage.REFUSED, Stage.ROLLED_BACK)
    assert fleet.versions() == {label(0): 3}
    assert weights(1).digest in fleet.quarantined


def test_commands_that_do_not_fit_are_refused_and_say_where_the_rollout_is() -> None:
    fleet = world(2)
    fleet.publish(1)
    fleet.run()
    for command in (commands.pause, commands.resume):
        with pytest.raises(commands.NotPossible, match="promoted"):
            command(fleet.record, by="op")
    with pytest.raises(commands.NotPossible, match="is promoted and cannot be rolled back"):
        commands.take_back(fleet.record, by="op", now=0.0)
