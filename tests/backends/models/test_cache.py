"""The cache of models: complete or absent, made once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.models.cache import cache_folder, cached


def write(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def test_a_model_is_made_once_and_then_found(tmp_path: Path) -> None:
    made: list[Path] = []

    def build(folder: Path) -> None:
        made.append(folder)
        write(folder)

    assert cached(tmp_path, "m", build) == cached(tmp_path, "m", build) == tmp_path / "m"
    assert len(made) == 1
    assert (tmp_path / "m" / "config.json").exists()


def test_a_model_whose_making_fails_leaves_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        cached(tmp_path, "m", fail)

    assert [path.name for path in tmp_path.iterdir()] == [".m.lock"]
    assert cached(tmp_path, "m", write).is_dir()


def test_those_who_come_meanwhile_wait_for_the_one_who_makes_it(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    made: list[Path] = []

    def build(folder: Path) -> None:
        made.append(folder)
        begun.set()
        assert go_on.wait(30)
        write(folder)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(cached, tmp_path, "m", build)
        assert begun.wait(30)
        others = [pool.submit(cached, tmp_path, "m", build) for _ in range(3)]
        assert not (tmp_path / "m").exists()
        go_on.set()
        results = {future.result(30) for future in (first, *others)}

    assert results == {tmp_path / "m"}
    assert len(made) == 1


def test_what_a_killed_process_left_half_done_is_cleared_away(tmp_path: Path) -> None:
    leftover = tmp_path / ".m.partial-dead"
    leftover.mkdir()
    write(leftover)

    cached(tmp_path, "m", write)

    assert not leftover.exists()


def test_where_the_cache_lies() -> None:
    home = Path("/home/u")

    assert cache_folder({}, home) == Path("/home/u/.cache/changeover/models")
    assert cache_folder({"XDG_CACHE_HOME": "/c"}, home) == Path("/c/changeover/models")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}, home) == Path("/home/u/.cache/changeover/models")
    assert cache_folder({"CHANGEOVER_CACHE_DIR": "/d", "XDG_CACHE_HOME": "/c"}, home) == Path("/d/models")
