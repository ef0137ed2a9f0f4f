"""The page of open-loop runs: outcomes, times, distributions, and how they change with the rate. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtests.samples import Outcome, Percentiles, Sample, Slo, Summary, by_second, summarise
from loadtests.stats import distribution
from reports.page import Cell, Plot, Report, Series, Table

TIMES = ["time, ms", "count", "mean", "P50", "P90", "P99", "P99.9", "longest"]
BROKEN = (Outcome.ERROR, Outcome.TIMEOUT, Outcome.UNSENT)


@dataclass(frozen=True, slots=True)
class Run:
    """One rate and what came of it."""

    name: str
    samples: Sequence[Sample]
    summary: Summary

    @classmethod
    def of(cls, name: str, samples: Sequence[Sample], seconds: float, slo: Slo) -> Run:
        return cls(name, samples, summarise(samples, seconds, slo))


def runs_page(title: str, runs: Sequence[Run], slo: Slo, facts: dict[str, str]) -> Report:
    """The whole page; its verdict is one line of the most important numbers of the last run."""
    last = runs[-1]
    return Report(
        title=title,
        lead=f"Latency counts from when a request was due. Good: whole within {_objective(slo)}.",
        verdict=verdict(last.summary),
        tables=[_outcomes(runs), *(_times(run) for run in runs)],
        plots=[*(_by_rate(runs) if len(runs) > 1 else ()), *_distributions(runs), _over_time(last, slo)],
        facts=facts,
    )


def verdict(summary: Summary) -> str:
    """As `offered=… goodput=… p50_ms=…`."""
    latency, ttft = summary.latency, summary.ttft
    return (
        f"offered={summary.offered:.4g} goodput={summary.goodput:.4g} p50_ms={_ms(latency.p50)} "
        f"p99_ms={_ms(latency.p99)} ttft_p50_ms={_ms(ttft.p50)} ttft_p99_ms={_ms(ttft.p99)} "
        f"gap_p50_ms={_ms(summary.gaps.p50)} failed={sum(summary.outcomes[each] for each in BROKEN)}"
    )


def _objective(slo: Slo) -> str:
    parts = [f"{slo.latency_s:g} s"]
    if slo.ttft_s is not None:
        parts.append(f"first token within {slo.ttft_s:g} s")
    if slo.gap_s is not None:
        parts.append(f"{slo.gap_s:g} s between tokens in the mean")
    return ", ".join(parts)


def _outcomes(runs: Sequence[Run]) -> Table:
    columns = ["run", "offered/s", "good/s", *Outcome, "refused without Retry-After", "driver late P99, ms"]
    return Table(title="Outcomes", columns=columns, rows=[_outcome_row(run) for run in runs])


def _outcome_row(run: Run) -> list[Cell]:
    summary = run.summary
    counts = [summary.outcomes[outcome] for outcome in Outcome]
    late = summary.late_p99_s * 1e3
    missing = summary.refusals_without_retry_after
    return [run.name, summary.offered, summary.goodput, *counts, missing, late]


def _times(run: Run) -> Table:
    summary = run.summary
    rows = [
        _times_row("all answers", summary.latency),
        *(_times_row(label, times) for label, times in summary.labels.items()),
        _times_row("first token (streams)", summary.ttft),
        _times_row("between tokens (streams)", summary.gaps),
        _times_row("refusals", summary.refusal),
    ]
    return Table(title=f"Times, {run.name}", columns=TIMES, rows=rows)


def _times_row(name: str, times: Percentiles) -> list[Cell]:
    values = (times.mean, times.p50, times.p90, times.p99, times.p999, times.max)
    return [name, times.count, *map(_scaled, values)]


def _scaled(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _ms(seconds: float | None) -> str:
    return "nan" if seconds is None else f"{seconds * 1e3:.4g}"


def _by_rate(runs: Sequence[Run]) -> tuple[Plot, Plot]:
    def series(name: str, value: Callable[[Summary], float | None]) -> Series:
        return Series(name, [(run.summary.offered, value(run.summary)) for run in runs])

    goodput = Plot(
        title="Goodput against rate",
        x="offered requests/s",
        y="requests/s",
        series=[
            series("good", lambda s: s.goodput),
            series("refused", lambda s: s.outcomes[Outcome.REFUSED] / s.seconds),
            series("offered", lambda s: s.offered),
        ],
    )
    times = Plot(
        title="Times against rate",
        x="offered requests/s",
        y="ms",
        log_y=True,
        series=[
            series("latency P50", lambda s: _scaled(s.latency.p50)),
            series("latency P99", lambda s: _scaled(s.latency.p99)),
            series("first token P99", lambda s: _scaled(s.ttft.p99)),
        ],
    )
    return goodput, times


def _distributions(runs: Sequence[Run]) -> list[Plot]:
    """Of one run by kind of request, of several by rate."""
    whole = {run.name: [s for s in run.samples if s.outcome is Outcome.OK] for run in runs}
    groups = whole
    if len(runs) == 1:
        (samples,) = whole.values()
        labels = sorted({sample.label for sample in samples})
        groups = {label: [s for s in samples if s.label == label] for label in labels}
    return [
        _shares("Latency of whole answers", groups, lambda s: [s.latency_s]),
        _shares("Time to the first token", whole, lambda s: [s.ttft_s] if s.ttft_s is not None else []),
        _shares("Time between tokens", whole, lambda s: list(s.gaps_s)),
    ]


def _shares(title: str, groups: dict[str, list[Sample]], values: Callable[[Sample], Sequence[float]]) -> Plot:
    series = [
        Series(
            name,
            [
                (value * 1e3, share * 100)
                for value, share in distribution([value for sample in samples for value in values(sample)])
            ],
        )
        for name, samples in groups.items()
    ]
    return Plot(title=title, x="ms", y="% at or below", log_x=True, dots=False, series=series)


def _over_time(run: Run, slo: Slo) -> Plot:
    seconds = by_second(run.samples, slo)
    return Plot(
        title=f"Second by second, {run.name}",
        x="second of the run in which requests were due",
        y="requests/s",
        dots=False,
        series=[
            Series("good", [(second, float(good)) for second, good, _ in seconds]),
            Series("refused", [(second, float(refused)) for second, _, refused in seconds]),
        ],
    )
