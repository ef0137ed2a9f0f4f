"""Prepared data in main memory is bounded, and never taken from under a run."""

from __future__ import annotations

import os
from pathlib import Path

from training.data.memory import memory_folder

MIB = 1024 * 1024
LIMIT_GIB = 3 / 1024


def fill(root: Path, key: str, size: int = MIB, age: int = 0) -> None:
    with memory_folder(root, key, size, LIMIT_GIB) as folder:
        assert folder is not None
        (folder / "data").write_bytes(b"x" * size)
    os.utime(root / key, (1000 - age, 1000 - age))


def entries(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


def test_the_entry_used_longest_ago_makes_way(tmp_path: Path) -> None:
    for key, age in (("old", 9), ("older", 99), ("young", 0)):
        fill(tmp_path, key, age=age)
    fill(tmp_path, "new")
    assert entries(tmp_path) == {"old", "young", "new"}


def test_an_entry_in_use_stays_and_what_does_not_fit_goes_elsewhere(tmp_path: Path) -> None:
    fill(tmp_path, "used", 2 * MIB)
    with (
        memory_folder(tmp_path, "used", 2 * MIB, LIMIT_GIB) as used,
        memory_folder(tmp_path, "new", 2 * MIB, LIMIT_GIB) as new,
    ):
        assert used is not None
        assert new is None
    with memory_folder(tmp_path, "huge", 4 * MIB, LIMIT_GIB) as huge:
        assert huge is None
    assert entries(tmp_path) == {"used"}


def test_an_entry_is_found_again(tmp_path: Path) -> None:
    fill(tmp_path, "same", 2 * MIB)
    with memory_folder(tmp_path, "same", 2 * MIB, LIMIT_GIB) as folder:
        assert folder is not None
        assert (folder / "data").exists()
