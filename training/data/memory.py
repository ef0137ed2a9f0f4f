"""Prepared data in main memory (/dev/shm), shared by runs of one user and bounded.

Each entry is a folder with a lock that its users hold; one that nobody holds makes way, the one used
longest ago first. What does not fit goes to disk: the caller is told so by None.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GIB = 1024**3
SHARE_OF_FREE = 0.5
"""Of the free memory below `root`, at most this share is taken for one entry."""


def default_root() -> Path:
    """With the user's number, so that users do not meet."""
    return Path(f"/dev/shm/changeover-data-{os.getuid()}")  # noqa: S108 (memory is what is wanted)


@contextmanager
def memory_folder(root: Path, key: str, needed: int, limit_gib: float) -> Iterator[Path | None]:
    """The folder of an entry, held until the context ends; None if `needed` bytes do not fit."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (root / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            folder = root / key
            fits = folder.is_dir() or _make_room(root, key, needed, limit_gib)
            if fits:
                folder.mkdir(exist_ok=True)
                os.utime(folder)
            yield folder if fits else None
    except PermissionError:
        yield None


def _make_room(root: Path, key: str, needed: int, limit_gib: float) -> bool:
    limit = int(limit_gib * GIB)
    if needed > limit:
        return False
    entries = sorted(
        (each for each in root.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime
    )
    total = sum(_size(each) for each in entries)
    for entry in entries:
        if total + needed <= limit:
            break
        if entry.name != key:
            total -= _remove_if_unused(entry)
    free = shutil.disk_usage(root).free
    return total + needed <= limit and needed <= free * SHARE_OF_FREE


def _remove_if_unused(entry: Path) -> int:
    """Bytes that became free."""
    size = _size(entry)
    with entry.with_name(f"{entry.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        shutil.rmtree(entry, ignore_errors=True)
        return size


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
