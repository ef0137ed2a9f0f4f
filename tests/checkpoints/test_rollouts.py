"""The record of a rollout: of two who decide at once one wins, and what was taken back is remembered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from checkpoints.draft import Request
from checkpoints.errors import ConflictError
from checkpoints.publish import publish
from checkpoints.rollouts import KEPT, Quarantined, Rollout, Rollouts, Stage
from checkpoints.store.journal import Entry
from checkpoints.store.store import Store
from tests.checkpoints.models import write_model


def _rollout(number: int = 1, **changes: object) -> Rollout:
    first = Rollout(
        id=f"r{number}",
        model="m",
        version=number,
        label=f"v{number}-12345678",
        digest="a" * 64,
        from_version=0,
        from_label="base",
        mode="rolling",
    )
    return msgspec.structs.replace(first, **changes)


def test_a_model_that_never_rolled_out_has_no_record(store: Store) -> None:
    assert store.rollouts.read() is None
    assert store.rollouts.history() == []
    assert store.rollouts.needed() == set()


@pytest.mark.fault("S10")
def test_of_many_who_move_a_rollout_on_at_once_one_wins_and_the_others_are_told(store: Store) -> None:
    seen = store.rollouts.write(_rollout())

    def move(stage: Stage) -> str:
        try:
            return store.rollouts.write(msgspec.structs.replace(seen, stage=stage)).stage
        except ConflictError:
            return "told"

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(move, [Stage.PREPARING, Stage.REFUSED] * 8))
    assert ends.count("told") == 15
    state = store.rollouts.read()
    assert state is not None
    assert (state.stage, state.generation) == (next(end for end in ends if end != "told"), 2)


def test_states_are_kept_in_a_bounded_number(store: Store, tmp_path: Path) -> None:
    state = _rollout()
    for _ in range(KEPT + 20):
        state = store.rollouts.write(state)
    assert len(store.files.names("rollout/states")) == KEPT
    assert store.rollouts.read() == state


def test_the_history_shows_how_each_rollout_ended(store: Store) -> None:
    first = store.rollouts.write(_rollout(1))
    first = store.rollouts.write(msgspec.structs.replace(first, stage=Stage.PROMOTED))
    store.rollouts.write(_rollout(2, generation=first.generation))
    assert [(each.id, each.stage) for each in store.rollouts.history()] == [
        ("r2", Stage.VERIFYING),
        ("r1", Stage.PROMOTED),
    ]
    assert [each.stage for each in store.rollouts.states("r1")] == [Stage.VERIFYING, Stage.PROMOTED]


def test_the_first_reason_of_a_quarantine_stays_until_it_is_lifted(store: Store) -> None:
    rollouts = Rollouts(store.files)
    rollouts.quarantine(Quarantined("a" * 64, 1, "the probe failed"))
    rollouts.quarantine(Quarantined("a" * 64, 1, "again"))
    assert rollouts.quarantined()["a" * 64].reason == "the probe failed"
    rollouts.lift("a" * 64)
    assert rollouts.quarantined() == {}


def test_versions_of_a_rollout_that_runs_are_not_collected(store: Store, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        publish(write_model(tmp_path / f"m{step}", seed=step), store, Request("run", step))
    store.rollouts.write(_rollout(2, from_version=1))
    assert store.plan_removal(1).remove == ()


def test_a_journal_entry_that_is_written_again_stands_there_once(store: Store) -> None:
    entry = Entry("2026-11-30T12:00:00+00:00", "rollout promoted", 1)
    for _ in range(2):
        store.journal.append_once(entry, "r1-4")
    assert store.journal.last() == [entry]
