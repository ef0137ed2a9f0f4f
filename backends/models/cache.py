"""The folder where built-in models are kept once they are made: complete or absent, made by one process.

A model is built beside its place and renamed into it after everything is on disk; a lock file makes
other processes wait instead of building it too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "CHANGEOVER_CACHE_DIR"


def cache_folder(environment: Mapping[str, str], home: Path) -> Path:
    """`$CHANGEOVER_CACHE_DIR/models`, else `$XDG_CACHE_HOME/changeover/models`, else under `~/.cache`."""
    if environment.get(CACHE_VARIABLE):
        return Path(environment[CACHE_VARIABLE]).absolute() / "models"
    # XDG Base Directory Specification: a relative path there is to be ignored.
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    base = configured if configured.is_absolute() else home / ".cache"
    return base / "changeover" / "models"


def cached(cache: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The folder `cache/key`, built by `build(empty folder)` if it is not there.

    Whatever `build` raises passes through and leaves nothing behind. Processes that come meanwhile wait.
    """
    target = cache / key
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{key}.lock"):
        if target.is_dir():
            return target
        _remove_leftovers(cache, key)
        partial = Path(tempfile.mkdtemp(prefix=f".{key}.partial-", dir=cache))
        try:
            build(partial)
            partial.chmod(0o755)
            _sync(partial)
            partial.rename(target)
            _sync_folder(cache)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_leftovers(cache: Path, key: str) -> None:
    """What a process that was killed left; safe under the lock, since only its holder builds."""
    for leftover in cache.glob(f".{key}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
