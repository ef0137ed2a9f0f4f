"""Which cells are which series: a log beside a worker's cells.

One JSON array a line; the last record of a start counts, and only while the block's tag in the cells
equals its generation (see `gateway.observe.cells`). The writer appends, and now and then replaces the file
by a shorter one. A reader reads on from where it was, and starts anew when the file is another one.
A line without its end (the writer was killed) is not read.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

SLACK = 1024
"""Outdated lines that are tolerated before the file is written anew."""


class Record(NamedTuple):
    start: int
    """Index of the block's first value."""
    generation: int
    family: str
    labels: tuple[str, ...]


_decoder = msgspec.json.Decoder(Record)


def names_path(folder: Path, slot: int) -> Path:
    return folder / f"worker-{slot}.names"


def decode_lines(data: bytes) -> tuple[list[Record], int]:
    """Return the whole lines of `data` as records, and how many bytes they took.

    Raises msgspec.DecodeError on a line that no writer of this version wrote.
    """
    end = data.rfind(b"\n") + 1
    return [_decoder.decode(line) for line in data[:end].splitlines()], end


class NameLog:
    """The writer's side. Not thread-safe; owned by `Cells`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._latest: dict[int, Record] = {}
        self._lines = 0
        self._damaged = False

    def load(self) -> list[Record]:
        """What an earlier worker left: the latest record of each block; nothing if it cannot be read."""
        try:
            records, _ = decode_lines(self._path.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        return list({record.start: record for record in records}.values())

    def append(self, record: Record) -> None:
        """Write one record. It is in the file when this returns.

        Raises OSError if it cannot be written (no room); the next call then tries to write them all.
        """
        self._latest[record.start] = record
        self._lines += 1
        line = msgspec.json.encode(record) + b"\n"
        if self._damaged or self._lines > 2 * len(self._latest) + SLACK:
            self.rewrite(list(self._latest.values()))
        elif os.write(self._fd, line) < len(line):
            self._damaged = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def rewrite(self, records: list[Record]) -> None:
        """Replace the file, whole or not at all."""
        draft = self._path.with_suffix(".names.new")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.writelines(msgspec.json.encode(record) + b"\n" for record in records)
        draft.replace(self._path)
        self.close()
        self._fd = fd
        self._latest = {record.start: record for record in records}
        self._lines = len(records)
        self._damaged = False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
