"""All workers' cells, read and combined: what a scrape shows.

Any worker may read; nothing is written and no lock is taken. A series is shown while some worker has it
open (series of members: some living worker), and then counts the cells of every worker, dead and closed
ones included, so that no counter falls. Gauges count living workers only.

A block is copied first and its tag read again afterwards: if the block was reused meanwhile, the tag has
changed and the copy is dropped, so that no value appears under another series' name.
"""

from __future__ import annotations

import mmap
import operator
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gateway.observe.cells import CAPACITY, NEXT, PID, PID_START, SCHEMA, SINCE, schema_of
from gateway.observe.names import decode_lines, names_path
from gateway.observe.process import start_ticks
from gateway.observe.table import Combine, Family, Kind

Labels = tuple[str, ...]


@dataclass(slots=True)
class Reading:
    """What the workers' files say at one time."""

    series: dict[str, dict[Labels, Sequence[float]]] = field(default_factory=dict)
    """By family name and open labels: the combined cells."""
    windows: dict[str, dict[Labels, list[Sequence[float]]]] = field(default_factory=dict)
    """Windows are not added up: the cells of each worker."""
    workers: dict[int, int] = field(default_factory=dict)
    """Living workers: process id by slot."""
    since: float = float("inf")
    """CLOCK_MONOTONIC at which the first worker began to count."""


class _Entry(NamedTuple):
    """A record, made ready for reading."""

    start: int
    stop: int
    generation: int
    key: str
    """Names the series. One string, since strings remember their hash and tuples do not."""
    family: Family
    labels: Labels


@dataclass(slots=True)
class _Total:
    """A series over the workers read so far."""

    family: Family
    labels: Labels
    cells: Sequence[float]
    shown: bool = False


class _Slot:
    """One worker's files, kept open between readings."""

    def __init__(self, path: Path, names: Path, slot: int, families: Mapping[str, Family]) -> None:
        self.slot = slot
        self._names = names
        self._families = families
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), CAPACITY * 8, prot=mmap.PROT_READ)
        self.live: memoryview[float] = memoryview(self._map).cast("d")
        self.entries: dict[int, _Entry] = {}
        self._inode = -1
        self._offset = 0

    def refresh_names(self) -> None:
        with self._names.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self.entries.clear()
                self._inode, self._offset = status.st_ino, 0
            if status.st_size == self._offset:
                return
            file.seek(self._offset)
            records, length = decode_lines(file.read())
        self._offset += length
        for record in records:
            family = self._families[record.family]
            self.entries[record.start] = _Entry(
                record.start,
                record.start + family.width,
                record.generation,
                "\0".join((record.family, *record.labels)),
                family,
                record.labels,
            )

    def copy(self) -> array[float]:
        used = max(int(self.live[NEXT]), SINCE + 1)
        return array("d", bytes(memoryview(self._map)[: used * 8]))

    def process(self) -> int | None:
        """The process id of the worker, if it lives."""
        pid = int(self.live[PID])
        started = int(self.live[PID_START])
        return pid if pid and start_ticks(pid) == started else None

    def close(self) -> None:
        self.live.release()
        self._map.close()


class CellsReader:
    """Reads the folder of one gateway. Not thread-safe."""

    def __init__(self, folder: Path, families: Sequence[Family]) -> None:
        self._folder = folder
        self._families = {family.name: family for family in families}
        self._schema = schema_of(families)
        self._slots: dict[int, _Slot] = {}

    def read(self) -> Reading:
        """Read everything in one go."""
        reading = Reading()
        for _ in self.read_slices(reading):
            pass
        return reading

    def read_slices(self, reading: Reading) -> Iterator[None]:
        """Fill `reading`, pausing after each worker so that the caller may do something else."""
        totals: dict[str, _Total] = {}
        for slot in self._present():
            if slot.live[SCHEMA] == self._schema:
                _read_slot(slot, reading, totals)
            yield
        for total in totals.values():
            if total.shown:
                reading.series.setdefault(total.family.name, {})[total.labels] = total.cells

    def close(self) -> None:
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    def _present(self) -> list[_Slot]:
        for path in self._folder.glob("worker-*.cells"):
            number = int(path.stem.removeprefix("worker-"))
            if number not in self._slots and path.stat().st_size == CAPACITY * 8:
                self._slots[number] = _Slot(path, names_path(self._folder, number), number, self._families)
        return list(self._slots.values())


def _read_slot(slot: _Slot, reading: Reading, totals: dict[str, _Total]) -> None:
    try:
        slot.refresh_names()
    except FileNotFoundError:  # Claimed a moment ago: nothing is counted yet.
        return
    pid = slot.process()
    if pid is not None:
        reading.workers[slot.slot] = pid
    copy, live = slot.copy(), slot.live
    used = len(copy)
    reading.since = min(reading.since, copy[SINCE])
    for start, stop, generation, key, family, labels in slot.entries.values():
        if stop > used:  # Made after the copy.
            continue
        tag = copy[start - 1]
        if abs(tag) != generation or abs(live[start - 1]) != generation:
            continue
        if family.kind is Kind.WINDOW:
            rings = reading.windows.setdefault(family.name, {}).setdefault(labels, [])
            rings.append(copy[start:stop])
            continue
        if pid is None and family.kind is Kind.GAUGE:
            continue
        total = totals.get(key)
        if total is None:
            total = totals[key] = _Total(family, labels, copy[start:stop])
        else:
            total.cells = list(map(_join(family), total.cells, copy[start:stop]))
        if tag > 0 and (pid is not None or not family.passing):
            total.shown = True


def _join(family: Family) -> Callable[[float, float], float]:
    maximum = family.kind is Kind.GAUGE and family.combine is Combine.MAX
    return max if maximum else operator.add
