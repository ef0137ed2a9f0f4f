"""`python -m loadtests.overload [--quick]`: what the gateway does with more load than its engines can bear.

Two fake engines of known capacity (slots and a service time); offered load from 0.5 to 3 times that, then a
long phase at twice it, then half. Each request says how long it may take. Goodput is whole answers within
that; refusals should be quick and say when to come back. Last line: goodput at twice the capacity as a
share of the best seen, P99 of a refusal, seconds until nothing is refused or late at half load again.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

import msgspec

from loadtests import changeover
from loadtests.arrivals import poisson
from loadtests.environment import REPORTS, environment
from loadtests.open_loop import Due
from loadtests.processes import Server, ServerFailed, cores, end_on_sigterm
from loadtests.samples import Outcome, Sample, Slo, Summary, by_second, summarise
from loadtests.shards import drive_sharded
from loadtests.wire import Target, post
from loadtests.workload import Ask
from reports.page import Cell, Plot, Report, Series, Table, text_table, write

ENGINES = 2
SLOTS = 8
SERVICE_S = 0.04
CAPACITY = ENGINES * SLOTS / SERVICE_S
"""Requests a second."""
DEADLINE_S = 1.0
SLO = Slo(latency_s=DEADLINE_S)
LIMITS = {"max_in_flight_per_member": 2 * SLOTS, "max_queued": int(CAPACITY * DEADLINE_S / 4)}
"""What an operator sets who knows the engines' size and what callers bear: twice the slots keeps the engines
full; the queue holds a quarter of what they serve within a deadline, so that nobody waits in vain."""
STEPS = (0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0)
PAUSE_S = 1.0
"""Between steps, so that each begins with nothing queued."""
HEADERS = (("x-request-timeout", f"{DEADLINE_S:g}"),)


@dataclass(frozen=True, slots=True)
class Lengths:
    step_s: float
    twice_s: float
    half_s: float


FULL = Lengths(step_s=10, twice_s=120, half_s=20)
QUICK = Lengths(step_s=2, twice_s=8, half_s=5)


@dataclass(frozen=True, slots=True)
class Step:
    """One offered load."""

    multiple: float
    """Of the capacity."""
    summary: Summary
    served_per_s: float

    @classmethod
    def of(cls, multiple: float, samples: list[Sample], seconds: float) -> Step:
        return cls(multiple, summarise(samples, seconds, SLO), served_per_s(samples, seconds))

    @property
    def refused_per_s(self) -> float:
        return self.summary.outcomes[Outcome.REFUSED] / self.summary.seconds

    @property
    def failed(self) -> int:
        counts = self.summary.outcomes
        return counts[Outcome.ERROR] + counts[Outcome.TIMEOUT] + counts[Outcome.UNSENT]

    def __str__(self) -> str:
        return (
            f"{self.multiple:.2f} × capacity: {self.served_per_s:.0f} good/s of {self.summary.offered:.0f}, "
            f"{self.refused_per_s:.0f} refused/s, {self.failed} failed"
        )


@dataclass(slots=True)
class Found:
    """All that was measured."""

    steps: list[Step] = field(default_factory=list)
    long_run: list[Sample] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    """Before and after the long run."""


def schedule(rate: float, seconds: float, seed: int, start_s: float = 0.0) -> list[Due]:
    """Requests that are all different and cannot come from a cache."""
    times = poisson(rate, seconds, seed)
    return [(start_s + at, _ask(f"{seed}-{index}")) for index, at in enumerate(times)]


def _ask(name: str) -> Ask:
    body = {"model": "m", "prompt": f"Request {name}", "max_tokens": 1, "temperature": 1}
    return Ask("/v1/completions", post("/v1/completions", msgspec.json.encode(body), HEADERS), False)


def measure(target: Target, gateway: Server, lengths: Lengths) -> Found:
    found = Found()
    for seed, multiple in enumerate(STEPS):
        due = schedule(multiple * CAPACITY, lengths.step_s, seed)
        found.steps.append(Step.of(multiple, _drive(target, due, quiet=True), lengths.step_s))
        print(f"  {found.steps[-1]}", flush=True)
        time.sleep(PAUSE_S)
    print(f"twice the capacity for {lengths.twice_s:g} s, then half", flush=True)
    due = schedule(2 * CAPACITY, lengths.twice_s, 100)
    due += schedule(CAPACITY / 2, lengths.half_s, 101, lengths.twice_s)
    found.rss_mb.append(gateway.rss_mb())
    found.long_run = _drive(target, due, quiet=False)
    found.rss_mb.append(gateway.rss_mb())
    return found


def _drive(target: Target, due: list[Due], *, quiet: bool) -> list[Sample]:
    return drive_sharded(target, due, processes=1, timeout_s=10 * DEADLINE_S, quiet=quiet)


def served_per_s(samples: list[Sample], seconds: float) -> float:
    """Good answers that came while the load was on, a second, once its first requests had their time.

    Counted when they came, not when they were due: what a queue serves after the end of a short step
    would look like more than the engines can do.
    """
    begin = min(DEADLINE_S, seconds / 2)
    ended = (s.at_s + s.latency_s for s in samples if SLO.met(s))
    return sum(begin <= moment < seconds for moment in ended) / (seconds - begin)


def recovery_s(samples: list[Sample], drop_s: float) -> float:
    """From the drop of the load to the last request due after it that was refused, late or failed."""
    bad = [s.at_s - drop_s for s in samples if s.at_s >= drop_s and not SLO.met(s)]
    return max(bad, default=0.0)


def verdict(found: Found, lengths: Lengths) -> str:
    twice = _twice(found, lengths)
    best = max(step.served_per_s for step in found.steps)
    refusal = twice.summary.refusal.p99
    return (
        f"goodput_at_2x={twice.served_per_s / best:.2f} "
        f"p99_refusal_ms={'nan' if refusal is None else f'{refusal * 1e3:.1f}'} "
        f"recovery_s={recovery_s(found.long_run, lengths.twice_s):.1f}"
    )


def _twice(found: Found, lengths: Lengths) -> Step:
    samples = [s for s in found.long_run if s.at_s < lengths.twice_s]
    return Step.of(2.0, samples, lengths.twice_s)


def page(found: Found, lengths: Lengths, facts: dict[str, str]) -> Report:
    return Report(
        title="Overload",
        lead=(
            f"{ENGINES} fake engines, {SLOTS} slots each, {SERVICE_S * 1e3:g} ms a request: {CAPACITY:g} "
            f"requests/s. Good: whole within {DEADLINE_S:g} s of when it was due. Limits: {LIMITS}."
        ),
        verdict=verdict(found, lengths),
        tables=[_table(found, lengths)],
        plots=[_by_load(found), _refusals(found), _over_time(found)],
        facts=facts,
    )


def _table(found: Found, lengths: Lengths) -> Table:
    columns = ["load", "offered/s", "good/s", "refused/s", "failed", "P50 ms", "P99 ms", "refusal P99 ms"]
    columns.append("no Retry-After")
    named = [(f"{step.multiple:.2f} ×", step) for step in found.steps]
    named.append((f"2.00 × for {lengths.twice_s:g} s", _twice(found, lengths)))
    rows = [_row(name, step) for name, step in named]
    before, after = found.rss_mb
    note = f"The gateway's memory before and after the long run: {before:.0f} and {after:.0f} MB."
    return Table(title="Load and what became of it", columns=columns, rows=rows, note=note)


def _row(name: str, step: Step) -> list[Cell]:
    summary = step.summary
    return [
        name,
        summary.offered,
        step.served_per_s,
        step.refused_per_s,
        step.failed,
        _ms(summary.latency.p50),
        _ms(summary.latency.p99),
        _ms(summary.refusal.p99),
        summary.refusals_without_retry_after,
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _by_load(found: Found) -> Plot:
    return Plot(
        title="Goodput and refusals against load",
        x="offered load / capacity",
        y="requests/s",
        series=[
            Series("good", [(step.multiple, step.served_per_s) for step in found.steps]),
            Series("refused", [(step.multiple, step.refused_per_s) for step in found.steps]),
            Series("what the engines can do", [(m, min(m, 1.0) * CAPACITY) for m in STEPS]),
        ],
    )


def _refusals(found: Found) -> Plot:
    return Plot(
        title="Times against load",
        x="offered load / capacity",
        y="ms",
        log_y=True,
        series=[
            Series("answer P50", [(step.multiple, _ms(step.summary.latency.p50)) for step in found.steps]),
            Series("answer P99", [(step.multiple, _ms(step.summary.latency.p99)) for step in found.steps]),
            Series("refusal P99", [(step.multiple, _ms(step.summary.refusal.p99)) for step in found.steps]),
        ],
    )


def _over_time(found: Found) -> Plot:
    seconds = by_second(found.long_run, SLO)
    return Plot(
        title="Twice the capacity, then half",
        x="second in which requests were due",
        y="requests/s",
        dots=False,
        series=[
            Series("good", [(second, float(good)) for second, good, _ in seconds]),
            Series("refused", [(second, float(refused)) for second, _, refused in seconds]),
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.overload", description="Overload.")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    lengths = QUICK if parser.parse_args().quick else FULL
    end_on_sigterm()
    facts = environment()
    behaviour = {"slots": SLOTS, "tokens": 1, "delay_first_chunk_s": SERVICE_S}
    settings = {"limits": LIMITS, "logging": {"requests": False}}
    core, _ = cores()
    try:
        with (
            changeover.fakes([behaviour] * ENGINES) as engines,
            changeover.gateway({**settings, "endpoints": changeover.urls(engines)}, core=core) as (
                server,
                port,
            ),
        ):
            found = measure(Target("127.0.0.1", port), server, lengths)
    except ServerFailed as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 1
    report = page(found, lengths, facts)
    print(f"\n{text_table(report.tables[0])}\n\n{write(report, REPORTS / 'overload.html')}\n{report.verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
