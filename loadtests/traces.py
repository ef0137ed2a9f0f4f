"""Recorded traffic in the public formats, as arrivals with sizes. Pure but for reading the file.

- Azure LLM inference traces (2023, 2024), CSV: `TIMESTAMP,ContextTokens,GeneratedTokens`
- BurstGPT, CSV: `Timestamp,…,Request tokens,Response tokens,…`, seconds
- Mooncake, JSON lines: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`, where equal ids at
  the beginning stand for equal blocks of 512 prompt tokens
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

MOONCAKE_BLOCK_TOKENS = 512


class TraceUnreadable(ValueError):
    """The file is of none of the known formats, or a line of it is broken."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One recorded request."""

    at_s: float
    """Seconds after the first of the trace."""
    prompt_tokens: int
    answer_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's blocks; requests whose ids begin alike share that beginning."""


def read_trace(path: Path) -> list[Arrival]:
    """All requests in order of arrival. Raises TraceUnreadable with the line's number."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return parse_trace(file, path.name)


def parse_trace(lines: Iterable[str], name: str = "trace") -> list[Arrival]:
    """The same from lines; the first one tells the format."""
    iterator = iter(lines)
    first = next(iterator, "").strip()
    if first.startswith("{"):
        found = _numbered(_mooncake, _chain(first, iterator), name, 1)
    else:
        columns = next(csv.reader([first]), [])
        parse = _csv_parser(columns, name)
        found = _numbered(parse, iterator, name, 2)
    arrivals = sorted(found, key=lambda arrival: arrival.at_s)
    if not arrivals:
        raise TraceUnreadable(f"{name} holds no requests")
    start = arrivals[0].at_s
    return [Arrival(a.at_s - start, a.prompt_tokens, a.answer_tokens, a.blocks) for a in arrivals]


def slice_trace(arrivals: list[Arrival], seconds: float, speed: float = 1.0) -> list[Arrival]:
    """What arrives within the first `seconds` of a replay that runs `speed` times as fast."""
    faster = (Arrival(a.at_s / speed, a.prompt_tokens, a.answer_tokens, a.blocks) for a in arrivals)
    return [arrival for arrival in faster if arrival.at_s < seconds]


_UNREADABLE = (ValueError, IndexError, msgspec.DecodeError)


class _Csv:
    """One line of a CSV by the positions of its columns."""

    def __init__(self, at: int, prompt: int, answer: int, *, dated: bool) -> None:
        self._at, self._prompt, self._answer, self._dated = at, prompt, answer, dated

    def __call__(self, line: str) -> Arrival:
        cells = next(csv.reader([line]))
        at = _date_s(cells[self._at]) if self._dated else float(cells[self._at])
        return Arrival(at, int(cells[self._prompt]), int(cells[self._answer]))


def _csv_parser(columns: list[str], name: str) -> _Csv:
    position = {column.strip().lower(): index for index, column in enumerate(columns)}
    if {"timestamp", "contexttokens", "generatedtokens"} <= position.keys():
        return _Csv(position["timestamp"], position["contexttokens"], position["generatedtokens"], dated=True)
    if {"timestamp", "request tokens", "response tokens"} <= position.keys():
        return _Csv(
            position["timestamp"], position["request tokens"], position["response tokens"], dated=False
        )
    raise TraceUnreadable(
        f"{name} is no trace in a known format (Azure CSV, BurstGPT CSV, Mooncake JSON lines): "
        f"it begins with the columns {', '.join(columns) or 'none'}"
    )


def _date_s(text: str) -> float:
    """Azure writes seven digits of a second in 2023 and an offset in 2024; only differences matter."""
    head, dot, fraction = text.partition(".")
    digits = fraction.partition("+")[0].rstrip("Z")
    seconds = datetime.fromisoformat(head.rstrip("Z") + "+00:00").timestamp()
    return seconds + (float(f"0.{digits}") if dot else 0.0)


class _MooncakeLine(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


_decode_mooncake = msgspec.json.Decoder(_MooncakeLine).decode


def _mooncake(line: str) -> Arrival:
    said = _decode_mooncake(line)
    return Arrival(said.timestamp / 1000, said.input_length, said.output_length, said.hash_ids)


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _numbered(
    parse: Callable[[str], Arrival], lines: Iterable[str], name: str, start: int
) -> Iterator[Arrival]:
    for number, line in enumerate(lines, start):
        if not line.strip():
            continue
        try:
            yield parse(line)
        except _UNREADABLE as error:
            raise TraceUnreadable(f"{name}, line {number}: {error}") from error
