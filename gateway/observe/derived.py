"""Gauges that are computed when asked for: QPS and latency, members by state, the workers' processes.

Pure but for the readings it is given; the kernel's figures come in through an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.observe import table
from gateway.observe.labels import INFERENCE
from gateway.observe.process import ProcessFigures
from gateway.observe.reader import Labels, Reading
from gateway.observe.table import Family
from gateway.observe.window import Figures, figures

QUANTILES = (0.5, 0.9, 0.99)

Samples = dict[Labels, float]


@dataclass(frozen=True, slots=True)
class LastMinute:
    """QPS and latency over the last 60 s."""

    total: Figures
    """All inference routes."""
    by_route: Mapping[str, Figures]


def route_slices(reading: Reading, now: float, by_route: dict[str, Figures]) -> Iterator[None]:
    """Fill `by_route`, pausing after each route: adding up the rings is most of a scrape's work."""
    rings = reading.windows.get(table.WINDOW.name, {})
    for route in INFERENCE:
        by_route[route] = figures(rings.get((route,), ()), now=now, since=reading.since)
        yield


def last_minute(by_route: Mapping[str, Figures]) -> LastMinute:
    """Put together what `route_slices` has filled."""
    parts = by_route.values()
    total = Figures(
        seconds=max(part.seconds for part in parts),
        counts=tuple(map(sum, zip(*(part.counts for part in parts), strict=True))),
        refused=sum(part.refused for part in parts),
    )
    return LastMinute(total, by_route)


def members_by_state(reading: Reading) -> Samples:
    """How many members of each model are in each state."""
    states = table.MEMBER_STATE.values
    counts: Counter[Labels] = Counter()
    for (model,) in reading.series.get(table.IN_FLIGHT.name, {}):
        counts.update({(model, state): 0 for state in states})
    for (model, _), cells in reading.series.get(table.MEMBER_STATE.name, {}).items():
        counts.update({(model, state): 1 for state, cell in zip(states, cells, strict=True) if cell})
    return {labels: float(count) for labels, count in counts.items()}


def derive(
    reading: Reading, minute: LastMinute, processes: Mapping[int, ProcessFigures]
) -> list[tuple[Family, Samples]]:
    """The families of `table.DERIVED`. `processes`: figures of the living workers by slot."""
    workers = {(str(slot),): process for slot, process in sorted(processes.items())}
    return [
        (table.MEMBERS, members_by_state(reading)),
        (table.WORKERS, {(): float(len(reading.workers))}),
        (table.QPS, {(): minute.total.qps}),
        (table.LATENCY, _quantiles((), minute.total)),
        (table.ROUTE_QPS, {(route,): part.qps for route, part in minute.by_route.items()}),
        (
            table.ROUTE_LATENCY,
            {
                labels: value
                for route, part in minute.by_route.items()
                for labels, value in _quantiles((route,), part).items()
            },
        ),
        (table.PROCESS_CPU, {labels: process.cpu_s for labels, process in workers.items()}),
        (table.PROCESS_MEMORY, {labels: float(p.resident_bytes) for labels, p in workers.items()}),
        (table.PROCESS_FILES, {labels: float(p.open_files) for labels, p in workers.items()}),
        (table.PROCESS_START, {labels: process.start_unix_s for labels, process in workers.items()}),
    ]


def _quantiles(labels: Sequence[str], part: Figures) -> Samples:
    return {(*labels, str(share)): part.quantile(share) for share in QUANTILES}
