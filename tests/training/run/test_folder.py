"""Whose folder it is, and whether a run may go on in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.run.test_checkpoints import write
from training.config.tree import TrainingConfig
from training.launch.errors import LaunchError
from training.run.folder import is_finished, open_folder, save_facts
from training.run.result import Result, read_result, save_result

RESULT = Result(3, 1.0, 2.0, 1.0, None, 5.0, 100.0)


def config(output: Path, **training: object) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"data": {"path": "x"}, "training": {"output_dir": str(output), **training}}
    )


def test_a_new_folder_begins_and_an_old_one_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert open_folder(config(output), []) is None
    save_facts(output, config(output))
    checkpoint = write(output, 3)
    write(output, 4, complete=False)
    said: list[str] = []
    assert open_folder(config(output, max_steps=9, log_every=1), said) == checkpoint
    assert said == ["checkpoint-4 was not written to its end and is removed"]


def test_another_run_is_not_continued_but_may_be_moved_aside(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    save_facts(output, config(output))
    write(output, 3)
    with pytest.raises(LaunchError, match=r"training.lr: 5e-05 -> 1.0[\s\S]*--training.resume never"):
        open_folder(config(output, lr=1), [])
    said: list[str] = []
    assert open_folder(config(output, lr=1, resume="never"), said) is None
    assert (tmp_path / "output.1" / "checkpoint-3").is_dir()
    assert "output.1" in said[0]


def test_checkpoints_of_nobody_knows_whom_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with pytest.raises(LaunchError, match="unknown run"):
        open_folder(config(tmp_path), [])


def test_a_checkpoint_can_be_chosen_if_it_is_whole(tmp_path: Path) -> None:
    whole, part = write(tmp_path, 1), write(tmp_path, 2, complete=False)
    assert open_folder(config(tmp_path / "new", resume=str(whole)), []) == whole
    for bad in (part, tmp_path / "checkpoint-9"):
        with pytest.raises(LaunchError, match=r"training\.resume"):
            open_folder(config(tmp_path / "new", resume=str(bad)), [])


def test_a_run_that_reached_its_end_is_known_by_its_result(tmp_path: Path) -> None:
    save_facts(tmp_path, config(tmp_path))
    assert not is_finished(tmp_path, config(tmp_path))
    save_result(tmp_path, RESULT)
    assert read_result(tmp_path) == RESULT
    assert is_finished(tmp_path, config(tmp_path))
    assert not is_finished(tmp_path, config(tmp_path, max_steps=7))
    save_facts(tmp_path, config(tmp_path))
    assert read_result(tmp_path) is None
