"""The page of one open-loop run: a table of outcomes and times, and its distributions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.report import Cell, Plot, Report, Series, Table
from loadtests.samples import Outcome, Percentiles, Sample, Slo, Summary, by_second
from loadtests.stats import distribution

TIMES = ["time, ms", "count", "mean", "P50", "P90", "P99", "P99.9", "longest"]


def run_page(
    title: str, samples: Sequence[Sample], summary: Summary, slo: Slo, facts: dict[str, str]
) -> Report:
    """The whole page; its verdict is one line of the most important numbers."""
    return Report(
        title=title,
        lead=f"Latency counts from when a request was due. Good: whole within {_objective(slo)}.",
        verdict=verdict(summary),
        tables=[_outcomes(summary), _times(summary)],
        plots=_plots(samples, slo),
        facts=facts,
    )


def verdict(summary: Summary) -> str:
    """As `offered=… goodput=… p50_ms=…`."""
    latency, ttft = summary.latency, summary.ttft
    return (
        f"offered={summary.offered:.4g} goodput={summary.goodput:.4g} p50_ms={_ms(latency.p50)} "
        f"p99_ms={_ms(latency.p99)} ttft_p50_ms={_ms(ttft.p50)} ttft_p99_ms={_ms(ttft.p99)} "
        f"gap_p50_ms={_ms(summary.gaps.p50)} failed={_failed(summary)}"
    )


def _failed(summary: Summary) -> int:
    return sum(summary.outcomes[each] for each in (Outcome.ERROR, Outcome.TIMEOUT, Outcome.UNSENT))


def _objective(slo: Slo) -> str:
    parts = [f"{slo.latency_s:g} s"]
    if slo.ttft_s is not None:
        parts.append(f"first token within {slo.ttft_s:g} s")
    if slo.gap_s is not None:
        parts.append(f"{slo.gap_s:g} s between tokens in the mean")
    return ", ".join(parts)


def _outcomes(summary: Summary) -> Table:
    return Table(
        title="Outcomes",
        columns=["offered/s", "good/s", *Outcome, "refused without Retry-After", "driver late P99, ms"],
        rows=[
            [
                summary.offered,
                summary.goodput,
                *(summary.outcomes[outcome] for outcome in Outcome),
                summary.refusals_without_retry_after,
                summary.late_p99_s * 1e3,
            ]
        ],
    )


def _times(summary: Summary) -> Table:
    rows = [
        _row("all answers", summary.latency),
        *(_row(label, times) for label, times in summary.labels.items()),
        _row("first token (streams)", summary.ttft),
        _row("between tokens (streams)", summary.gaps),
        _row("refusals", summary.refusal),
    ]
    return Table(title="Times", columns=TIMES, rows=rows)


def _row(name: str, times: Percentiles) -> list[Cell]:
    values = (times.mean, times.p50, times.p90, times.p99, times.p999, times.max)
    return [name, times.count, *(None if value is None else value * 1e3 for value in values)]


def _ms(value: float | None) -> str:
    return "nan" if value is None else f"{value * 1e3:.4g}"


def _plots(samples: Sequence[Sample], slo: Slo) -> list[Plot]:
    whole = [sample for sample in samples if sample.outcome is Outcome.OK]
    seconds = by_second(samples, slo)
    return [
        _shares(
            "Latency of whole answers",
            {
                label: [s.latency_s for s in whole if s.label == label]
                for label in sorted({s.label for s in whole})
            },
        ),
        _shares("Time to the first token", {"streams": [s.ttft_s for s in whole if s.ttft_s is not None]}),
        _shares("Time between tokens", {"streams": [gap for s in whole for gap in s.gaps_s]}),
        Plot(
            title="Second by second",
            x="second of the run in which requests were due",
            y="requests/s",
            dots=False,
            series=[
                Series("good", [(second, float(good)) for second, good, _ in seconds]),
                Series("refused", [(second, float(refused)) for second, _, refused in seconds]),
            ],
        ),
    ]


def _shares(title: str, groups: dict[str, list[float]]) -> Plot:
    series = [
        Series(name, [(value * 1e3, share * 100) for value, share in distribution(values)])
        for name, values in groups.items()
    ]
    return Plot(title=title, x="ms", y="% at or below", log_x=True, dots=False, series=series)
