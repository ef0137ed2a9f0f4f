"""When a folder that somebody else writes counts as done."""

from __future__ import annotations

from pathlib import Path

import msgspec

from checkpoints.finished import LISTED, STATE, Settling, Signs, checkpoints_in, look, step_of


def signs(*, size: int = 1, listed: bool | None = None, state: int | None = None) -> Signs:
    return Signs({"model.safetensors": (size, 0)}, listed, state)


def test_a_folder_without_a_mark_must_be_quiet_for_a_while() -> None:
    settling = Settling(30)
    assert not settling.done("checkpoint-4", 4, signs(), 0.0)
    assert not settling.done("checkpoint-4", 4, signs(), 29.0)
    assert settling.done("checkpoint-4", 4, signs(), 30.0)


def test_a_change_begins_the_wait_anew() -> None:
    settling = Settling(30)
    settling.done("checkpoint-4", 4, signs(), 0.0)
    assert not settling.done("checkpoint-4", 4, signs(size=2), 29.0)
    assert not settling.done("checkpoint-4", 4, signs(size=2), 40.0)
    assert settling.done("checkpoint-4", 4, signs(size=2), 59.0)


def test_the_trainers_last_file_shortens_the_wait_only_for_its_own_step() -> None:
    settling = Settling(30)
    settling.done("checkpoint-4", 4, signs(state=4), 0.0)
    assert settling.done("checkpoint-4", 4, signs(state=4), 3.0)
    settling.done("checkpoint-8", 8, signs(state=4), 0.0)
    assert not settling.done("checkpoint-8", 8, signs(state=4), 3.0)


def test_a_list_of_files_decides_at_once() -> None:
    assert Settling(30).done("checkpoint-4", 4, signs(listed=True), 0.0)
    settling = Settling(30)
    settling.done("checkpoint-4", 4, signs(listed=False), 0.0)
    assert not settling.done("checkpoint-4", 4, signs(listed=False), 100.0)


def test_a_folder_without_weights_never_is_a_checkpoint() -> None:
    settling, empty = Settling(1), Signs({"config.json": (1, 0)}, None, None)
    settling.done("checkpoint-4", 4, empty, 0.0)
    assert not settling.done("checkpoint-4", 4, empty, 100.0)


def test_looking_reads_what_trainers_leave(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-4"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"12")
    (folder / STATE).write_text('{"global_step": 4')
    seen = look(folder)
    assert seen is not None and (seen.listed, seen.state_step) == (None, None)
    (folder / STATE).write_text('{"global_step": 4, "epoch": 1}')
    (folder / LISTED).write_bytes(msgspec.json.encode({"model.safetensors": 3}))
    seen = look(folder)
    assert seen is not None and (seen.listed, seen.state_step) == (False, 4)
    (folder / LISTED).write_bytes(msgspec.json.encode({"model.safetensors": 2}))
    seen = look(folder)
    assert seen is not None and seen.listed
    assert look(tmp_path / "gone") in (None, Signs({}, None, None))


def test_checkpoints_are_known_by_their_names(tmp_path: Path) -> None:
    for name in (
        "checkpoint-10",
        "checkpoint-9",
        "step_3",
        "logs",
        "checkpoint-final",
        ".checkpoint-11.partial",
    ):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoints_in(tmp_path)] == ["step_3", "checkpoint-9", "checkpoint-10"]
    assert step_of(tmp_path / "checkpoint-10") == 10
