"""When weights are published."""

from __future__ import annotations

import math

from training.exporter.settings import ExportSettings
from training.exporter.when import When


def when(**settings: object) -> When:
    return When(ExportSettings.model_validate({"store": "s", "model": "m", **settings}))


def test_each_checkpoint_is_published_once() -> None:
    decide = when()
    assert decide.saved(4)
    assert not decide.saved(4)
    assert not decide.stepped(5)
    assert not decide.measured(5, {"eval_loss": 0.1})


def test_every_n_steps_counts_optimizer_steps() -> None:
    decide = when(on="steps", every=3)
    assert [step for step in range(1, 10) if decide.stepped(step)] == [3, 6, 9]
    assert not decide.saved(9)


def test_the_last_weights_are_published_unless_they_were() -> None:
    decide = when(on="steps", every=3)
    assert decide.stepped(3)
    assert not decide.ended(3)
    assert decide.ended(4)
    assert not when().ended(0)


def test_only_a_better_metric_counts_as_best() -> None:
    decide = when(on="best")
    losses = [2.0, 2.5, 1.5, 1.5, math.nan, 1.0]
    assert [decide.measured(step, {"eval_loss": loss}) for step, loss in enumerate(losses, 1)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert not decide.ended(7)


def test_a_larger_reward_can_be_the_better_one() -> None:
    decide = when(on="best", metric="reward", greater_is_better=True)
    assert decide.measured(1, {"reward": 0.1})
    assert not decide.measured(2, {"reward": 0.0, "eval_loss": 0.0})
    assert decide.measured(3, {"reward": 0.2})
