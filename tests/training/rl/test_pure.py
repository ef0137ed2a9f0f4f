"""The decisions of the loop, without a gateway and without torch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkpoints.feedback import Feedback
from checkpoints.manifest import Digests, FileEntry, Manifest, content_digest
from checkpoints.probe.parity import Numbers
from checkpoints.rollouts import Rollout, Stage
from training.exporter.publisher import Outcome
from training.rl.mismatch import Drift, compare
from training.rl.policy import PolicyRefused, await_rollout
from training.rl.pool import Pool, pool
from training.rl.rollouts import Rollouts
from training.rl.sampling import Sample, Sampling, Share, groups, version_of


def test_equal_prompts_that_follow_each_other_are_one_group() -> None:
    assert groups(["a", "a", "b", "b", "b", "a"], 2) == [("a", 2), ("b", 2), ("b", 1), ("a", 1)]
    assert groups([], 4) == []


def test_only_labels_that_the_store_gives_have_a_number() -> None:
    assert version_of("v7-1a2b3c4d") == 7
    assert version_of("base-1a2b3c4d") == 0
    assert [version_of(label) for label in ("", "v7", "7", "v07-1a2b3c4d", "mine")] == [None] * 5


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_a_share_is_counted_out_not_drawn(share: float) -> None:
    count, taken = Share(share), 0
    for number in range(1, 101):
        if count.due():
            count.took()
            taken += 1
        assert abs(taken - share * number) < 1


def test_equal_numbers_differ_by_nothing() -> None:
    found = compare([[-1.0, -2.0], []], [[-1.0, -2.0], []])
    assert found is not None
    assert (found.n, found.k3, found.mean) == (2, 0.0, 0.0)
    assert compare([[None]], [[-1.0]]) is None
    assert compare([[-1.0]], [[None]]) is None


def numbers(k3: float) -> Numbers:
    return Numbers(n=100, mean=0.01, p99=0.1, max=0.2, k3=k3, ratio=1.0, top1=1.0, ess=1.0)


def test_one_step_above_the_limit_is_told_two_in_a_row_are_drift() -> None:
    drift = Drift(0.02, 0.15, plain_sampling=True)
    assert drift.judge(numbers(0.001), 1) is None
    told = drift.judge(numbers(0.03), 2)
    assert told is not None and "version 2" in told
    assert not drift.drifts
    drift.judge(numbers(0.03), 3)
    assert drift.drifts
    drift.judge(numbers(0.001), 4)
    assert not drift.drifts
    assert drift.alarms == 2


def test_a_difference_that_is_no_rounding_is_drift_at_once() -> None:
    drift = Drift(0.02, 0.15, plain_sampling=True)
    told = drift.judge(numbers(3.0), 1)
    assert told is not None and "tokenizer" in told
    assert drift.drifts


def test_a_temperature_is_suspected_first() -> None:
    told = Drift(0.02, 0.15, plain_sampling=False).judge(numbers(0.5), 1)
    assert told is not None and "processed_logprobs" in told


def outcome(version: int = 3) -> Outcome:
    files = (FileEntry("a", 1, "0" * 64),)
    manifest = Manifest(
        schema=1, model="m", version=version, run="r", step=5, parent=None, kind="full", created="",
        digest=content_digest(files), data="d", files=files, digests=Digests(), tensor_count=1,
    )  # fmt: skip
    return Outcome(5, manifest, timings={"write": 1.0, "publish": 2.0})


def rollout(version: int, stage: Stage, reason: str = "") -> Rollout:
    return Rollout(
        id="r", model="m", version=version, label=f"v{version}", digest="", from_version=version - 1,
        from_label="v-before", mode="atomic", stage=stage, reason=reason,
    )  # fmt: skip


class Course:
    """Rollout states, one for each look; time passes by sleeping."""

    def __init__(self, *states: Rollout | None) -> None:
        self.states = list(states)
        self.now = 0.0
        self.begun: list[int] = []

    def begin(self, version: int) -> None:
        self.begun.append(version)

    def look(self) -> Rollout | None:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_an_update_counts_when_every_engine_serves_it() -> None:
    course = Course(None, rollout(2, Stage.PROMOTED), rollout(3, Stage.ROLLING), rollout(3, Stage.PROMOTED))
    swapped = await_rollout(outcome(), course, course.look, 60, lambda: course.now, course.sleep)
    assert (swapped.version, swapped.step, swapped.write_s, swapped.publish_s) == (3, 5, 1.0, 2.0)
    assert course.begun == [3]
    assert swapped.swap_s == pytest.approx(0.3)


def test_a_version_that_is_taken_back_ends_the_run_with_the_reason() -> None:
    course = Course(rollout(3, Stage.ROLLED_BACK, "probe: tokenizer"))
    with pytest.raises(PolicyRefused, match=r"rolled back: probe: tokenizer.*v-before"):
        await_rollout(outcome(), course, course.look, 60, lambda: course.now, course.sleep)


def test_a_rollout_that_never_begins_is_not_waited_for_without_end() -> None:
    course = Course(rollout(2, Stage.PROMOTED))
    with pytest.raises(PolicyRefused, match=r"none began.*rollout\.auto"):
        await_rollout(outcome(), course, course.look, 60, lambda: course.now, course.sleep)


def test_a_policy_that_is_not_published_is_not_waited_for() -> None:
    course = Course(None)
    with pytest.raises(PolicyRefused, match="superseded"):
        await_rollout(Outcome(5, reason="superseded"), course, course.look, 60)
    assert course.begun == []


def sample(request: str, index: int, prompt: tuple[int, ...] = (1,)) -> Sample:
    return Sample(prompt, (9, index), (-1.0, -2.0), "v1-0a0a0a0a", 1, request, index)


def row(request: str, index: int) -> dict[str, object]:
    return {
        "prompt_ids": [1], "completion_ids": [9, index], "logprobs": [-1.0, -2.0], "label": "v1-0a0a0a0a",
        "version": 1, "request": request, "index": index, "rating": None,
    }  # fmt: skip


def ids(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def test_ratings_join_the_samples_that_they_are_of() -> None:
    rows = [row("r", 0), row("r", 1), row("s", 0), row("s", 1)]
    said = [
        Feedback(request_id="r", index=1, rating=-1),
        Feedback(request_id="r", index=1, rating=1),
        Feedback(request_id="s", rating=0.5),
        Feedback(request_id="unknown", rating=1),
    ]
    joined = pool(rows, said, ids, ids)
    assert len(joined) == 2
    first, second = joined.group([1], 2), joined.group([1], 2)
    assert first is not None and second is not None
    assert [one.rating for one in first] == [None, 1]
    assert [one.rating for one in second] == [0.5, 0.5]
    assert all(one.offline for one in first + second)


def test_rated_answers_that_no_trainer_asked_for_form_groups() -> None:
    said = [
        Feedback(request_id=f"u{number}", rating=number - 1, prompt="p", completion=f"answer {number}")
        for number in range(3)
    ]
    joined = pool([], said, ids, ids)
    group = joined.group(ids("p"), 3)
    assert group is not None
    assert [one.rating for one in group] == [-1, 0, 1]
    assert group[0].logprobs == (None,) * len(group[0].ids)
    assert joined.group(ids("p"), 4) is None
    assert joined.group(ids("other"), 1) is None


class Source:
    """Gives samples, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], int, int]] = []

    def sample(self, prompt: Sequence[int], count: int, sampling: Sampling, least: int) -> list[Sample]:
        self.asked.append((tuple(prompt), count, least))
        return [sample(f"new-{prompt[0]}", index, tuple(prompt)) for index in range(count)]


def test_a_batch_comes_back_in_the_order_of_its_prompts() -> None:
    source = Source()
    rollouts = Rollouts(source, ids, Sampling(1, 1, 4), parallel=4, group_size=2)
    rollouts.least = 7
    found = rollouts(["a", "a", "b", "b"], None)
    rollouts.close()
    assert found["prompt_ids"] == [[97], [97], [98], [98]]
    assert [one.index for one in rollouts.taken] == [0, 1, 0, 1]
    assert sorted(source.asked) == [((97,), 2, 7), ((98,), 2, 7)]
    assert set(found) >= {"completion_ids", "logprobs", "model_version", "user_rating"}


def test_the_mix_takes_earlier_groups_where_there_are_any() -> None:
    source = Source()
    rollouts = Rollouts(source, ids, Sampling(1, 1, 4), parallel=1, group_size=2)
    earlier = [
        Sample((97,), (1,), (None,), "v1-0a0a0a0a", 1, "old", index, 1.0, offline=True) for index in (0, 1)
    ]
    rollouts.mix(Pool([earlier]), 0.5)
    rollouts(["a", "a", "a", "a", "b", "b", "b", "b"], None)
    rollouts.close()
    assert [one.offline for one in rollouts.taken] == [False, False, True, True, False, False, False, False]
