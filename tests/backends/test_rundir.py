"""The private folder with the sockets and the token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.rundir import NotPrivate, prepare, read_token


def test_the_folder_and_its_token_are_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    token = prepare(folder)

    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    assert len(token) >= 32
    assert [path.name for path in folder.iterdir()] == ["token"]


def test_all_that_start_at_once_read_the_same_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: prepare(tmp_path / "run"), range(32)))

    assert len(tokens) == 1
    assert tokens == {read_token(tmp_path / "run")}


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)

    with pytest.raises(NotPrivate, match="must belong to you alone"):
        prepare(folder)


def test_a_link_to_a_folder_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "target")

    with pytest.raises(NotPrivate):
        prepare(tmp_path / "run")


def test_a_token_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    prepare(tmp_path / "run")
    (tmp_path / "run" / "token").chmod(0o644)

    with pytest.raises(NotPrivate):
        read_token(tmp_path / "run")
