"""Which checkpoints of a run are complete.

A trainer writes `checkpoint-N` in place, file by file; a machine that goes away leaves part of one. So when
everything is written, and is on disk, a list of the files with their sizes is added, last and at once. A
checkpoint without that list, or with other files, is not resumed from.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import msgspec

MARK = "complete.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(checkpoint: Path) -> None:
    """Bring its files to disk, then list them. Raises OSError."""
    sizes = _sizes(checkpoint)
    for name in sizes:
        _sync(checkpoint / name)
    _sync(checkpoint)
    partial = checkpoint / f".{MARK}.partial"
    partial.write_bytes(msgspec.json.encode(sizes))
    _sync(partial)
    partial.rename(checkpoint / MARK)
    _sync(checkpoint)


def is_complete(checkpoint: Path) -> bool:
    """Whether every file that was listed is there in its size."""
    try:
        listed = msgspec.json.decode((checkpoint / MARK).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return False
    found = _sizes(checkpoint)
    return bool(listed) and all(found.get(name) == size for name, size in listed.items())


def step_of(checkpoint: Path) -> int | None:
    """N of `checkpoint-N`."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else None


def checkpoints(output: Path) -> list[Path]:
    """All, complete or not, the newest first."""
    found = [each for each in output.glob("checkpoint-*") if each.is_dir() and step_of(each) is not None]
    return sorted(found, key=lambda each: step_of(each) or 0, reverse=True)


def newest_complete(output: Path) -> Path | None:
    """The checkpoint to go on from."""
    return next((each for each in checkpoints(output) if is_complete(each)), None)


def remove_incomplete(output: Path) -> list[str]:
    """Remove what a run that was killed began to write; returns the names."""
    broken = [each for each in checkpoints(output) if not is_complete(each)]
    for each in broken:
        shutil.rmtree(each)
    return [each.name for each in broken]


def _sizes(folder: Path) -> dict[str, int]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    sizes.pop(MARK, None)
    return sizes


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
