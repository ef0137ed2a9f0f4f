"""What the rounds come to: the table, the plots, and the line of ratios. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loadtests.peers.catalog import OURS, PEERS
from loadtests.peers.rounds import Measured
from loadtests.stats import Spread, median, paired_ratio, ratio
from reports.page import Cell, Plot, Series, Table

COMPARED = (
    ("vs_vllm_router", "vllm-router"),
    ("vs_smg", "smg"),
    ("vs_sglang_router", "sglang-router"),
    ("vs_litellm", "LiteLLM"),
    ("vs_envoy", "Envoy"),
)


def last_line(measured: Sequence[Measured]) -> str:
    """The ratios that the project holds itself to; `nan` where a peer was not run."""
    known = {each.name: each for each in measured}
    ours = known[OURS]
    parts = [f"{key}={_show(_faster(ours, known.get(name)))}" for key, name in COMPARED]
    router = known.get("vllm-router")
    alone = _common(ours.alone_p50_s, router.alone_p50_s) if router is not None else math.nan
    parts.append(f"p50_vs_vllm_router={_show(alone)}")
    parts.append(f"stream_cpu_vs_best={_show(_stream_cost(ours, known))}")
    return " ".join(parts)


def _faster(ours: Measured, other: Measured | None) -> float:
    return _common(ours.per_s, other.per_s) if other is not None else math.nan


def _common(mine: Sequence[float], other: Sequence[float]) -> float:
    """The median ratio of the rounds that both have."""
    rounds = min(len(mine), len(other))
    return paired_ratio(mine[:rounds], other[:rounds])


def _stream_cost(ours: Measured, known: dict[str, Measured]) -> float:
    routers = [known[peer.name] for peer in PEERS if peer.rust and peer.name in known]
    costs = [median(router.cpu_per_event_s) for router in routers if router.cpu_per_event_s]
    return ratio(median(ours.cpu_per_event_s), min(costs)) if costs else math.nan


def _show(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "nan"


COLUMNS = [
    "gateway",
    "requests/s",
    "lowest–highest",
    "P50 ms",
    "P99 ms",
    "P50 ms, 1 client",
    "CPU µs/request",
    "CPU µs/event",
    "memory MB",
    "",
]


def table(measured: Sequence[Measured], note: str) -> Table:
    """One row a gateway, medians of the rounds."""
    return Table(
        title="Gateways side by side", columns=COLUMNS, rows=[_row(each) for each in measured], note=note
    )


def _row(each: Measured) -> list[Cell]:
    per_s = Spread.of(each.per_s)
    return [
        each.name,
        per_s.median,
        f"{per_s.low:,.0f}–{per_s.high:,.0f}" if each.per_s else "–",
        _scaled(each.p50_s, 1e3),
        _scaled(each.p99_s, 1e3),
        _scaled(each.alone_p50_s, 1e3),
        _scaled(each.cpu_per_request_s, 1e6),
        _scaled(each.cpu_per_event_s, 1e6),
        each.rss_mb,
        f"not run: {each.why_not}" if each.why_not and not each.per_s else each.why_not,
    ]


def _scaled(values: Sequence[float], factor: float) -> float:
    return median(values) * factor


def plots(measured: Sequence[Measured]) -> list[Plot]:
    """A bar a gateway."""
    return [
        _bars("Requests/s on one core, 32 connections", "requests/s", measured, lambda m: median(m.per_s)),
        _bars("P50 at one connection", "ms", measured, lambda m: _scaled(m.alone_p50_s, 1e3)),
        _bars("Processor time of a request", "µs", measured, lambda m: _scaled(m.cpu_per_request_s, 1e6)),
        _bars(
            "Processor time of a streamed event", "µs", measured, lambda m: _scaled(m.cpu_per_event_s, 1e6)
        ),
        _bars("Memory after the load", "MB", measured, lambda m: m.rss_mb),
    ]


def _bars(
    title: str,
    unit: str,
    measured: Sequence[Measured],
    value: Callable[[Measured], float],
    *,
    log: bool = False,
) -> Plot:
    series = [Series(each.name, [(0.0, value(each))]) for each in measured if math.isfinite(value(each))]
    return Plot(title=title, y=unit, kind="bars", log_y=log, series=series)
