"""Notices that a configuration file changed while the run goes on. It is reported once, and not read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

LOOK_EVERY_S = 5.0


class ConfigWatch:
    """The files as they were when it was made. `look` costs a `stat` a file, at most every LOOK_EVERY_S."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._was = {path.absolute(): (_stamp(path), _digest(path)) for path in files}
        self._next_look = 0.0
        self.changed: list[Path] = []
        """All files that were found changed, or gone."""

    def look(self, now: float) -> list[Path]:
        """Files that changed since the last look. now: monotonic seconds."""
        if now < self._next_look:
            return []
        self._next_look = now + LOOK_EVERY_S
        news = []
        for path, (stamp, digest) in self._was.items():
            if path in self.changed or _stamp(path) == stamp:
                continue
            if _digest(path) != digest:
                news.append(path)
        self.changed += news
        return news


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
