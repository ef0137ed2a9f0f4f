"""A scrape: the text that Prometheus reads, in its own format or as OpenMetrics 1.0.

Written here instead of through prometheus_client, whose encoder alone takes longer than all of this; its
two parsers check what comes out. The rendering is a generator of pieces, each about a millisecond of work,
so that streams go on between them. Names and labels are escaped once and kept while the series lives.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from gateway.observe import process
from gateway.observe.derived import LastMinute, derive, last_minute, route_slices
from gateway.observe.figures import Figures as Counted
from gateway.observe.figures import figures_of
from gateway.observe.reader import CellsReader, Labels, Reading
from gateway.observe.table import DERIVED, FAMILIES, PREFIX, Family, Kind
from gateway.observe.window import Figures

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

SERIES_PER_PIECE = 100


def wants_openmetrics(accept: str) -> bool:
    """Whether a scraper's Accept header names OpenMetrics (every Prometheus since 2.5 does)."""
    return "application/openmetrics-text" in accept


class Exposition:
    """Renders all workers' counts. One for each worker; scrapes run one after the other."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the one that `cells.prepare` made."""
        self._reader = CellsReader(folder, FAMILIES)
        self._booted = process.boot_unix_s()
        self._heads: dict[tuple[str, Labels], tuple[str, ...]] = {}
        self._lock = asyncio.Lock()

    async def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return the body and its content type. Lets the loop run between pieces; may be cancelled."""
        openmetrics = wants_openmetrics(accept)
        async with self._lock:
            parts: list[str] = []
            for piece in self.pieces(time.monotonic(), openmetrics=openmetrics):
                parts.append(piece)
                await asyncio.sleep(0)
        return "".join(parts).encode(), OPENMETRICS if openmetrics else TEXT

    def last_minute(self) -> LastMinute:
        """QPS and latency now, for whoever shows them otherwise than Prometheus does."""
        by_route: dict[str, Figures] = {}
        for _ in route_slices(self._reader.read(), time.monotonic(), by_route):
            pass
        return last_minute(by_route)

    async def figures(self, models: list[str]) -> Counted:
        """What was counted until now, by name. Lets the loop run in between; may be cancelled."""
        now = time.monotonic()
        reading = Reading()
        by_route: dict[str, Figures] = {}
        async with self._lock:
            for _ in self._reader.read_slices(reading):
                await asyncio.sleep(0)
            for _ in route_slices(reading, now, by_route):
                await asyncio.sleep(0)
        return figures_of(reading, last_minute(by_route), models, now)

    def pieces(self, now: float, *, openmetrics: bool) -> Iterator[str]:
        """The text in pieces; some are empty. `now` on CLOCK_MONOTONIC."""
        reading = Reading()
        for _ in self._reader.read_slices(reading):
            yield ""
        kept: dict[tuple[str, Labels], tuple[str, ...]] = {}
        for family in FAMILIES:
            if family.kind is Kind.WINDOW:
                continue
            yield _title(family, openmetrics=openmetrics)
            series = list(reading.series.get(family.name, {}).items())
            for start in range(0, len(series), SERIES_PER_PIECE):
                yield self._render(family, series[start : start + SERIES_PER_PIECE], kept)
        self._heads = kept
        by_route: dict[str, Figures] = {}
        for _ in route_slices(reading, now, by_route):
            yield ""
        yield self._derived(reading, last_minute(by_route), openmetrics=openmetrics)
        if openmetrics:
            yield "# EOF\n"

    def close(self) -> None:
        self._reader.close()

    def _render(
        self,
        family: Family,
        series: Sequence[tuple[Labels, Sequence[float]]],
        kept: dict[tuple[str, Labels], tuple[str, ...]],
    ) -> str:
        lines: list[str] = []
        for labels, cells in series:
            key = (family.name, labels)
            heads = kept[key] = self._heads.get(key) or _heads(family, labels)
            values = _histogram(cells) if family.kind is Kind.HISTOGRAM else cells
            lines += [f"{head} {value!r}\n" for head, value in zip(heads, values, strict=True)]
        return "".join(lines)

    def _derived(self, reading: Reading, minute: LastMinute, *, openmetrics: bool) -> str:
        processes = {
            slot: found
            for slot, pid in reading.workers.items()
            if (found := process.figures(pid, self._booted)) is not None
        }
        lines: list[str] = []
        for family, samples in derive(reading, minute, processes):
            lines.append(_title(family, openmetrics=openmetrics))
            lines += [
                f"{_head(family.name, family.labels, labels)} {_number(value)}\n"
                for labels, value in samples.items()
            ]
        return "".join(lines)


def names() -> list[str]:
    """Every metric name that a scrape shows, as a query would write it."""
    return [PREFIX + family.name for family in (*FAMILIES, *DERIVED) if family.kind is not Kind.WINDOW]


def _title(family: Family, *, openmetrics: bool) -> str:
    name = PREFIX + family.name
    if openmetrics and family.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    return f"# HELP {name} {_escape(family.help)}\n# TYPE {name} {family.kind.value}\n"


def _heads(family: Family, labels: Labels) -> tuple[str, ...]:
    """What stands before the values of a series' cells, in their order."""
    if family.kind is Kind.HISTOGRAM:
        edges = (*(repr(edge) for edge in family.buckets), "+Inf")
        names, bucket = (*family.labels, "le"), f"{family.name}_bucket"
        return (
            *(_head(bucket, names, (*labels, edge)) for edge in edges),
            _head(f"{family.name}_count", family.labels, labels),
            _head(f"{family.name}_sum", family.labels, labels),
        )
    if family.values:
        return tuple(_head(family.name, family.labels, (*labels, value)) for value in family.values)
    return (_head(family.name, family.labels, labels),)


def _head(name: str, names: Sequence[str], values: Sequence[str]) -> str:
    pairs = ",".join(f'{label}="{_escape(value)}"' for label, value in zip(names, values, strict=True))
    return f"{PREFIX}{name}{{{pairs}}}" if pairs else PREFIX + name


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _histogram(cells: Sequence[float]) -> list[float]:
    """Cumulative counts by bucket, the count and the sum, from the cells."""
    counts = list(accumulate(cells[:-1]))
    return [*counts, counts[-1], cells[-1]]


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)
