"""Readers of line-based files: JSON lines, JSON, CSV and TSV, plain text; each also compressed (.gz)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec

from training.config.kinds import TextUnit
from training.data.errors import DataError
from training.data.reading import MAX_RECORD_BYTES, Read

MAX_ARRAY_BYTES = 1024**3
"""Largest file that is one JSON array; it is read whole, JSON lines are not."""


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their number, from 1, without their ends. Bytes that are no UTF-8 raise DataError."""
    number = 0
    try:
        with _open(path) as file:
            while line := file.readline(MAX_RECORD_BYTES + 1):
                number += 1
                if len(line) > MAX_RECORD_BYTES:
                    raise DataError(f"{path.name} line {number}: is longer than {MAX_RECORD_BYTES >> 20} MiB")
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} after line {number}: is not UTF-8 ({error.reason})") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def json_lines(path: Path) -> Iterator[Read]:
    """One object a line; blank lines are passed over."""
    for number, line in _lines(path):
        if line.strip():
            yield _object(f"{path.name} line {number}", line)


def json_file(path: Path) -> Iterator[Read]:
    """An array of objects, or JSON lines under the name .json."""
    with path.open("rb") as file:
        is_array = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if not is_array:
        yield from json_lines(path)
        return
    if path.stat().st_size > MAX_ARRAY_BYTES:
        raise DataError(f"{path.name}: is one array of more than 1 GiB; write JSON lines (.jsonl) instead")
    try:
        items = msgspec.json.decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise DataError(f"{path.name}: is not valid JSON: {error}") from error
    for index, item in enumerate(items):
        yield _object(f"{path.name} item {index}", bytes(item))


def _object(place: str, text: str | bytes) -> Read:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return Read(place, None, f"is not valid JSON: {error}")
    if not isinstance(value, dict):
        return Read(place, None, f"should be an object, but is {type(value).__name__}")
    return Read(place, value)


def separated(path: Path) -> Iterator[Read]:
    """CSV or TSV with a line of names first."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    separator = "\t" if ".tsv" in path.suffixes else ","
    place = path.name
    try:
        with _open(path) as file:
            rows = csv.reader(file, delimiter=separator, strict=True)
            names = next(rows, None)
            if not names:
                return
            if len(set(names)) != len(names) or not all(names):
                raise DataError(f"{path.name} line 1: names of columns are missing or not unique: {names}")
            for row in rows:
                place = f"{path.name} line {rows.line_num}"
                if len(row) == len(names):
                    yield Read(place, dict(zip(names, row, strict=True)))
                elif row:
                    yield Read(place, None, f"has {len(row)} cells, but there are {len(names)} columns")
    except csv.Error as error:
        raise DataError(f"{place}: is not valid CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"after {place}: is not UTF-8 ({error.reason})") from error


def plain_text(path: Path, unit: TextUnit) -> Iterator[Read]:
    """Lines, paragraphs (separated by blank lines) or the file as a whole."""
    paragraph: list[str] = []
    begin = 1
    size = 0
    for number, line in _lines(path):
        ends = unit is TextUnit.LINE or (unit is TextUnit.PARAGRAPH and not line.strip())
        if line.strip() or (unit is TextUnit.FILE and paragraph):
            begin = begin if paragraph else number
            paragraph.append(line)
            size += len(line)
        if size > MAX_RECORD_BYTES:
            raise DataError(f"{path.name} from line {begin}: one {unit} is longer than 64 MiB")
        if ends and paragraph:
            yield Read(f"{path.name} line {begin}", {"text": "\n".join(paragraph)})
            paragraph, size = [], 0
    if paragraph:
        yield Read(f"{path.name} line {begin}", {"text": "\n".join(paragraph)})
