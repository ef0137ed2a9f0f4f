"""Reads, checks and writes records as one Arrow file, from which a run reads without holding it in memory.

The file's name is a digest of the sources and of the options that matter, so a second run, and a resumed
one, find it again. Called by one process of each machine; the others wait for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from training.config.kinds import BadRecords, Method
from training.config.tree import Data
from training.data.errors import DataError
from training.data.formats import read_records
from training.data.reading import Read
from training.data.records import Layout, OddRecord, Prepared, layout_of, prepare
from training.data.sources import Report

_BATCH = 1000
"""Records that are written at a time."""
_REPORT_EVERY = 100_000
_MOST_NAMED = 5
"""Odd records that are named in the log when they are skipped."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What was prepared."""

    path: Path
    """An Arrow stream file."""
    records: int
    skipped: int


def key_of(files: Iterable[Path], data: Data, method: Method) -> str:
    """Changes when a source or an option that matters does."""
    options = data.model_dump(mode="json", exclude={"shuffle", "validation_share", "cache", "memory_gib"})
    stamps = [(str(each.absolute()), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    return hashlib.sha256(msgspec.json.encode([stamps, options, method.value])).hexdigest()[:20]


def prepare_corpus(files: list[Path], data: Data, method: Method, folder: Path, report: Report) -> Corpus:
    """The Arrow file in `folder`, made if it is not there.

    Raises DataError for what cannot be read, for odd records unless they are to be skipped, and if no
    record is left.
    """
    key = key_of(files, data, method)
    target, facts = folder / f"{key}.arrow", folder / f"{key}.json"
    if not facts.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{key}.partial"
        selection = _Selection(data, method, report)
        _write(partial, selection.records(files))
        if not selection.kept:
            partial.unlink(missing_ok=True)
            names = ", ".join(each.name for each in files[:3])
            raise DataError(
                f"data.path: no record is left to train on ({names}; {selection.skipped} skipped)"
            )
        partial.rename(target)
        facts.write_bytes(msgspec.json.encode([selection.kept, selection.skipped]))
    records, skipped = msgspec.json.decode(facts.read_bytes(), type=tuple[int, int])
    return Corpus(target, records, skipped)


class _Selection:
    """Goes through the records once, and counts."""

    def __init__(self, data: Data, method: Method, report: Report) -> None:
        self._data = data
        self._method = method
        self._report = report
        self._layout: Layout | None = None
        self.kept = 0
        self.skipped = 0

    def records(self, files: list[Path]) -> Iterator[Prepared]:
        """Good records in order, at most `data.limit`."""
        for path in files:
            try:
                for read in read_records(path, self._data.text_unit):
                    if self.kept == self._data.limit:
                        return
                    record = self._checked(read)
                    if record is not None:
                        self.kept += 1
                        if self.kept % _REPORT_EVERY == 0:
                            self._report(f"{self.kept:,} records read")
                        yield record
            except ModuleNotFoundError as error:
                raise DataError(f"{path.name}: reading it needs {error.name}: make setup-training") from error

    def _checked(self, read: Read) -> Prepared | None:
        try:
            if read.record is None:
                raise OddRecord(read.problem)
            if self._layout is None:
                self._layout = layout_of(read.record, self._data, self._method)
                fields = ", ".join(self._layout.fields)
                self._report(f"records are {self._layout.kind.value}, from the fields {fields}")
            return prepare(read.record, self._layout)
        except OddRecord as odd:
            if self._data.on_bad_record is BadRecords.ERROR:
                advice = "mend it, or leave such records out with data.on_bad_record: skip"
                raise DataError(f"{read.place}: {odd}; {advice}") from odd
            self.skipped += 1
            if self.skipped <= _MOST_NAMED:
                self._report(f"skipped: {read.place}: {odd}")
            return None


def _write(path: Path, records: Iterator[Prepared]) -> None:
    """Write in batches of the schema that the first batch shows. Raises DataError where others differ."""
    import pyarrow as pa

    schema: Any = None
    with pa.OSFile(str(path), "wb") as sink:
        writer: Any = None
        while batch := list(islice(records, _BATCH)):
            try:
                table = pa.Table.from_pylist(batch, schema=schema)
            except (pa.ArrowException, TypeError) as error:
                raise DataError(f"a field has values of different types: {error}") from error
            schema = table.schema
            writer = writer or pa.ipc.new_stream(sink, schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
