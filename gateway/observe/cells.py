"""One worker's counts, in a file that every worker can read.

A file of doubles, mapped into memory: counting is `cells.values[i] += n` and survives `kill -9`, since
the page belongs to the kernel. Each series has a block of cells; the cell before a block holds its tag:
the block's generation while the series is open, the negative while it is closed (its counts are kept,
until the space is needed), 0 while it is free. Which block is which series stands in `gateway.observe.names`.

Only the worker that claimed the slot writes; a lock that dies with the process sees to that. A worker that
takes the slot of a dead one goes on with its counters; gauges start at 0 and series of members are closed
until the worker meets the member again. Full: further series of a family share one, labelled `overflow`.
Reading all workers' files: `gateway.observe.reader`.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.observe.labels import OVERFLOW
from gateway.observe.names import NameLog, Record, names_path
from gateway.observe.process import start_ticks
from gateway.observe.table import Family, Kind

logger = logging.getLogger(__name__)

CAPACITY = 1 << 18
"""Cells of one worker: 2 MiB, a third of it for windows, the rest for some thousand series."""
MAX_CLOSED = 512
"""Closed series whose counts are kept in case they are opened again."""

# The cells at the beginning of a file.
SCHEMA, PID, PID_START, GENERATION, NEXT, SINCE = range(6)
HEADER = 8

SeriesKey = tuple[str, tuple[str, ...]]
"""Family name and the values of its open labels."""


def cells_path(folder: Path, slot: int) -> Path:
    return folder / f"worker-{slot}.cells"


def prepare(folder: Path) -> None:
    """Make an empty folder for the counts of a gateway that starts. Call once, before any worker runs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in [*folder.glob("worker-*.cells"), *folder.glob("worker-*.names*")]:
        path.unlink(missing_ok=True)


def schema_of(families: Iterable[Family]) -> float:
    """A number that differs where the layout of any family differs."""
    text = repr([(f.name, f.kind, f.labels, f.values, f.buckets, f.width) for f in families])
    return float(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big") + 1)


class SlotTaken(OSError):
    """Another living process writes to this slot."""


@dataclass(slots=True)
class _Block:
    start: int
    generation: int
    family: Family
    opened: int


class Cells:
    """A worker's mapped file. `values` is shared memory: index it with what `open` returned."""

    def __init__(
        self,
        folder: Path,
        slot: int,
        families: Sequence[Family],
        *,
        now: float,
        keep_closed: int = MAX_CLOSED,
    ) -> None:
        """Claim a slot and take over the counters a dead worker left there.

        `now`: CLOCK_MONOTONIC in seconds. `keep_closed`: how many closed series keep their counts.
        Raises `SlotTaken` if a living process holds the slot, OSError if the folder is not writable or
        has no room.
        """
        self.slot = slot
        self.released = False
        self._keep_closed = keep_closed
        self._families = {family.name: family for family in families}
        self._fd = os.open(cells_path(folder, slot), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            # Reserved now: a full file system is an error here, not a SIGBUS at some count later.
            os.posix_fallocate(self._fd, 0, CAPACITY * 8)
            self._map = mmap.mmap(self._fd, CAPACITY * 8)
        except BaseException:
            os.close(self._fd)
            raise
        self.values: memoryview[float] = memoryview(self._map).cast("d")
        self._log = NameLog(names_path(folder, slot))
        self._blocks: dict[SeriesKey, _Block] = {}
        self._keys: dict[int, SeriesKey] = {}
        self._closed: OrderedDict[SeriesKey, None] = OrderedDict()
        self._free: dict[int, deque[int]] = {}
        # Room that only overflow series may take: one of every family.
        self._limit = CAPACITY - sum(family.width + 1 for family in families)
        self._overflowed: set[str] = set()
        self._start(schema_of(families), now)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SlotTaken(f"slot {self.slot} of the metrics folder belongs to a running worker") from error

    def _start(self, schema: float, now: float) -> None:
        values = self.values
        values[PID] = 0.0
        records = self._log.load()
        if values[SCHEMA] != schema:
            self._map[:] = bytes(CAPACITY * 8)
            values[NEXT], values[SINCE] = HEADER, now
            records = []
        for record in records:
            self._inherit(record)
        self._log.rewrite(records)
        values[SCHEMA] = schema
        values[PID_START] = start_ticks(os.getpid()) or 0
        values[PID] = os.getpid()

    def _inherit(self, record: Record) -> None:
        family = self._families[record.family]
        if abs(self.values[record.start - 1]) != record.generation:
            self._free.setdefault(family.width, deque()).append(record.start)
            return
        key = (record.family, record.labels)
        self._keep(key, _Block(record.start, record.generation, family, opened=0))
        if family.kind is Kind.GAUGE:
            self._zero(record.start, family.width)
        if family.passing or self.values[record.start - 1] < 0:
            self._retire(key)

    def open(self, family: Family, labels: tuple[str, ...] = ()) -> int:
        """Return the index of the first cell of a series, making the series if need be.

        `labels`: values of `family.open_labels`. Opening twice is counted; each needs its `close`.
        If there is no room, the index is that of the family's `overflow` series.
        """
        if len(labels) != len(family.open_labels):
            raise ValueError(f"{family.name} has the labels {family.open_labels}, not {labels}")
        block = self._blocks.get((family.name, labels)) or self._allocate(family, labels)
        block.opened += 1
        self.values[block.start - 1] = block.generation
        self._closed.pop((family.name, labels), None)
        return block.start

    def close(self, index: int) -> None:
        """Take back one `open`, given what it returned; after the last, the series is no longer shown.

        Gauges become 0. The cells must not be written to afterwards.
        """
        key = self._keys[index]
        block = self._blocks[key]
        block.opened -= 1
        if block.opened > 0:
            return
        if block.family.kind is Kind.GAUGE:
            self._zero(block.start, block.family.width)
        self._retire(key)

    def release(self) -> None:
        """Leave the slot: the counters stay, the gauges no longer count. `values` is void afterwards."""
        self.released = True
        self.values[PID] = 0.0
        self.values.release()
        self._map.close()
        self._log.close()
        os.close(self._fd)

    def series(self) -> list[SeriesKey]:
        """The open series, for tests and diagnosis."""
        return [key for key in self._blocks if key not in self._closed]

    def _retire(self, key: SeriesKey) -> None:
        block = self._blocks[key]
        self.values[block.start - 1] = -block.generation
        self._closed[key] = None
        if len(self._closed) > self._keep_closed:
            self._evict(next(iter(self._closed)))

    def _evict(self, key: SeriesKey) -> None:
        self._closed.pop(key)
        block = self._blocks.pop(key)
        del self._keys[block.start]
        self.values[block.start - 1] = 0.0  # From here on no reader takes these cells for this series.
        self._free.setdefault(block.family.width, deque()).append(block.start)

    def _allocate(self, family: Family, labels: tuple[str, ...]) -> _Block:
        start = self._room(family.width, self._limit)
        if start is None:
            return self._overflow(family)
        return self._create(family, labels, start)

    def _room(self, width: int, limit: int) -> int | None:
        free = self._free.get(width)
        if free:
            return free.popleft()
        start = int(self.values[NEXT]) + 1
        if start + width <= limit:
            self.values[NEXT] = start + width
            return start
        closed = next((key for key in self._closed if self._blocks[key].family.width == width), None)
        if closed is None:
            return None
        self._evict(closed)
        return self._free[width].popleft()

    def _overflow(self, family: Family) -> _Block:
        labels = (OVERFLOW,) * len(family.open_labels)
        if family.name not in self._overflowed:
            self._overflowed.add(family.name)
            logger.error(
                "No room for more series of %s: further ones are counted as %r", family.name, OVERFLOW
            )
        found = self._blocks.get((family.name, labels))
        if found is not None:
            return found
        start = self._room(family.width, CAPACITY)
        if start is None:
            raise RuntimeError(f"the room reserved for the overflow of {family.name} is gone")
        return self._create(family, labels, start)

    def _create(self, family: Family, labels: tuple[str, ...], start: int) -> _Block:
        """Order matters to readers: cells zeroed, name written, tag set. The tag is set by `open`."""
        generation = int(self.values[GENERATION]) + 1
        self.values[GENERATION] = generation
        self._zero(start, family.width)
        try:
            self._log.append(Record(start, generation, family.name, labels))
        except OSError:
            # Serving goes on; the series is shown as soon as the names can be written again.
            logger.exception("The name of a series of %s could not be written", family.name)
        block = _Block(start, generation, family, opened=0)
        self._keep((family.name, labels), block)
        return block

    def _keep(self, key: SeriesKey, block: _Block) -> None:
        self._blocks[key] = block
        self._keys[block.start] = key

    def _zero(self, start: int, width: int) -> None:
        self.values[start : start + width] = memoryview(array("d", bytes(width * 8)))
