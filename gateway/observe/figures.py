"""What was counted until now, by name: for a page that shows differences. Pure.

All workers of this machine together. Counters only grow while the gateway runs; a reader that sees one fall
begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.observe import table
from gateway.observe.derived import QUANTILES, LastMinute
from gateway.observe.evidence import evidence_of
from gateway.observe.reader import Labels, Reading
from gateway.observe.table import Family

ByName = dict[str, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at the counters."""

    at: float
    """Seconds of the monotonic clock."""
    minute: dict[str, float | None]
    """`qps`, `p50`, `p90`, `p99` (seconds) of the last 60 s; None: nothing was answered in it."""
    totals: dict[str, ByName]
    """`requests` by outcome, `cache` by event, `refused` and `retries` by reason, `attempts` by result,
    `batches` (`count`, `prompts`)."""
    versions: dict[str, dict[str, ByName]]
    """By model and label: `requests`, `errors`."""


def figures_of(reading: Reading, minute: LastMinute, models: list[str], at: float) -> Figures:
    """Put together from one reading of the cells."""
    quantiles = {f"p{round(share * 100)}": minute.total.quantile(share) for share in QUANTILES}
    batches = _sum(reading, table.BATCH_SIZE)
    return Figures(
        at=at,
        minute={"qps": minute.total.qps, **{name: _known(value) for name, value in quantiles.items()}},
        totals={
            "requests": _named(reading, table.REQUESTS),
            "cache": _named(reading, table.CACHE),
            "refused": _named(reading, table.REFUSED),
            "retries": _named(reading, table.RETRIES),
            "attempts": _named(reading, table.ATTEMPTS),
            "batches": {"count": sum(batches[:-1]), "prompts": batches[-1] if batches else 0.0},
        },
        versions={
            model: {
                label: {"requests": seen.requests, "errors": seen.errors}
                for label, seen in evidence_of(reading, model).items()
            }
            for model in models
        },
    )


def _known(value: float) -> float | None:
    return value if value == value else None


def _named(reading: Reading, family: Family) -> ByName:
    """Cells of all series of a family by the closed label's value."""
    return dict(zip(family.values, _sum(reading, family), strict=True))


def _sum(reading: Reading, family: Family) -> list[float]:
    series: Mapping[Labels, object] = reading.series.get(family.name, {})
    cells = [reading.series[family.name][labels] for labels in series]
    return [sum(values) for values in zip(*cells, strict=True)] if cells else [0.0] * family.width
