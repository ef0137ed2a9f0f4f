"""Only a checkpoint that was written to its end is gone on from."""

from __future__ import annotations

from pathlib import Path

from training.run.checkpoints import MARK, is_complete, mark_complete, newest_complete, remove_incomplete


def write(output: Path, step: int, *, complete: bool = True) -> Path:
    folder = output / f"checkpoint-{step}"
    (folder / "shards").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "shards" / "0.bin").write_bytes(b"optimizer")
    if complete:
        mark_complete(folder)
    return folder


def test_the_newest_complete_one_by_number_is_taken(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write(tmp_path, step)
    write(tmp_path, 101, complete=False)
    (tmp_path / "checkpoint-best").mkdir()
    assert newest_complete(tmp_path) == tmp_path / "checkpoint-100"
    assert remove_incomplete(tmp_path) == ["checkpoint-101"]
    assert newest_complete(tmp_path / "nowhere") is None


def test_a_file_that_is_gone_or_shorter_makes_it_incomplete(tmp_path: Path) -> None:
    short, gone, torn, more = (write(tmp_path, step) for step in (1, 2, 3, 4))
    (short / "model.safetensors").write_bytes(b"wei")
    (gone / "shards" / "0.bin").unlink()
    (torn / MARK).write_bytes(b'{"model.safe')
    (more / "notes").write_text("added by others")
    assert [is_complete(each) for each in (short, gone, torn, more)] == [False, False, False, True]
