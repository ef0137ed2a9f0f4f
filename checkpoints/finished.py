"""Is a trainer done with this folder? For runs that one cannot touch.

Trainers write `checkpoint-N` in place, file by file, and say nowhere that they are done. Signs: our own list
of files (`complete.json`, training.run.checkpoints); `trainer_state.json`, which transformers writes last;
and that nothing has changed for a while. Looking is I/O, judging is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

LISTED = "complete.json"
STATE = "trainer_state.json"
_NAME = re.compile(r"(?:checkpoint|step|global_step|epoch)[-_]?(\d+)")

Stamps = Mapping[str, tuple[int, int]]
"""Size and time of change of each file."""


class Signs(msgspec.Struct, frozen=True):
    """What one look at a folder shows."""

    stamps: dict[str, tuple[int, int]]
    listed: bool | None
    """Every file of our list is there in its size; None: there is no list."""
    state_step: int | None
    """The step that transformers' last file names; None: there is none, or it is half written."""


def step_of(folder: Path) -> int | None:
    """N of `checkpoint-N`, `step_N` and the like; None: no checkpoint by its name."""
    found = _NAME.fullmatch(folder.name)
    return int(found[1]) if found else None


def checkpoints_in(output: Path) -> list[Path]:
    """Folders that are called like checkpoints, the oldest step first. Raises OSError."""
    found = [each for each in output.iterdir() if step_of(each) is not None and each.is_dir()]
    return sorted(found, key=lambda each: step_of(each) or 0)


def look(folder: Path) -> Signs | None:
    """None: it went away meanwhile."""
    try:
        stats = {
            path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()
        }
        stamps = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
        return Signs(stamps, _listed(folder, stamps), _state_step(folder))
    except FileNotFoundError:
        return None


def _listed(folder: Path, stamps: Stamps) -> bool | None:
    if LISTED not in stamps:
        return None
    try:
        wanted = msgspec.json.decode((folder / LISTED).read_bytes(), type=dict[str, int])
    except msgspec.DecodeError:
        return False
    return bool(wanted) and all(name in stamps and stamps[name][0] == size for name, size in wanted.items())


class _State(msgspec.Struct):
    global_step: int


def _state_step(folder: Path) -> int | None:
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=_State).global_step
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class Settling:
    """Remembers looks at folders, and tells which are done."""

    def __init__(self, settle_s: float) -> None:
        """settle_s: how long a folder without any mark must not change; a tenth of it where
        `trainer_state.json` is there."""
        self._settle_s = settle_s
        self._since: dict[str, tuple[Stamps, float]] = {}

    def done(self, name: str, step: int, signs: Signs, now: float) -> bool:
        """Whether the trainer is done, by this look and those before it."""
        if signs.listed is not None:
            return signs.listed
        stamps, since = self._since.get(name, ({}, now))
        if stamps != signs.stamps:
            self._since[name] = (signs.stamps, now)
            return False
        quiet = now - since
        if not any(file.endswith(".safetensors") for file in stamps):
            return False
        return quiet >= (self._settle_s / 10 if signs.state_step == step else self._settle_s)

    def forget(self, keep: set[str]) -> None:
        """Folders that are gone need no memory."""
        self._since = {name: look for name, look in self._since.items() if name in keep}
