"""Which reader reads which file, by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from training.config.kinds import TextUnit
from training.data import binaries, texts
from training.data.errors import DataError
from training.data.reading import Read

Reader = Callable[[Path], Iterator[Read]]
_READERS: Mapping[str, Reader] = {
    ".jsonl": texts.json_lines,
    ".ndjson": texts.json_lines,
    ".json": texts.json_file,
    ".csv": texts.separated,
    ".tsv": texts.separated,
    ".parquet": binaries.parquet,
    ".h5": binaries.hdf5,
    ".hdf5": binaries.hdf5,
    ".tfrecord": binaries.tfrecord,
    ".tfrecords": binaries.tfrecord,
}
_TEXTS = (".txt", ".md", ".text")
_COMPRESSED = (".jsonl", ".ndjson", ".csv", ".tsv", *_TEXTS)
KNOWN = (*_READERS, *_TEXTS)


def suffix_of(name: str) -> str | None:
    """The suffix that names a known format (`.jsonl` of `a.jsonl.gz`), or None."""
    path = Path(name.lower())
    if path.suffix == ".gz":
        inner = path.with_suffix("").suffix
        return inner if inner in _COMPRESSED else None
    return path.suffix if path.suffix in KNOWN else None


def read_records(path: Path, unit: TextUnit) -> Iterator[Read]:
    """The records of one file. Raises DataError where the file as a whole cannot be read."""
    suffix = suffix_of(path.name)
    if suffix is None:
        raise DataError(f"{path}: its format is not known; known are {', '.join(KNOWN)}")
    if suffix in _TEXTS:
        return texts.plain_text(path, unit)
    return _READERS[suffix](path)
