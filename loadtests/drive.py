"""`python -m loadtests.drive URL …`: an open-loop load with progress, JSON results and a page.

    python -m loadtests.drive http://localhost:8000 --rate 10,20,50 --seconds 30 --arrivals poisson --seed 1
    python -m loadtests.drive http://localhost:8000 --trace mooncake.jsonl --speed 2 --processes 2

Several rates run one after the other, and the page shows goodput against rate. Arrivals are made beforehand
and latency counts from when a request was due. Several processes share the schedule, each on a core of its
own where there are as many.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from loadtests.arrivals import ARRIVALS
from loadtests.environment import REPORTS, environment
from loadtests.open_loop import Due
from loadtests.pages import Run, runs_page
from loadtests.samples import Sample, Slo, Summary
from loadtests.shards import drive_sharded
from loadtests.traces import TraceUnreadable, read_trace, slice_trace
from loadtests.wire import Target
from loadtests.workload import Mix, asks, from_trace
from reports.page import write


class Measured(msgspec.Struct):
    """One rate."""

    name: str
    summary: Summary
    samples: list[Sample]


class Result(msgspec.Struct):
    """What is written as JSON."""

    environment: dict[str, str]
    slo: Slo
    runs: list[Measured]


def _rates(value: str) -> list[float]:
    return [float(rate) for rate in value.split(",")]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m loadtests.drive", description="Open-loop load.")
    made.add_argument("url", help="as http://localhost:8000")
    made.add_argument("--rate", type=_rates, default=[20.0], help="requests a second; several with commas")
    made.add_argument("--seconds", type=float, default=30.0, help="for each rate")
    made.add_argument("--arrivals", choices=sorted(ARRIVALS), default="poisson")
    made.add_argument("--trace", type=Path, help="recorded arrivals and sizes: Azure, BurstGPT, Mooncake")
    made.add_argument("--speed", type=float, default=1.0, help="replay the trace so many times as fast")
    made.add_argument("--largest", type=int, default=512, help="most tokens of a trace's prompt or answer")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--model", help="default: the server's own")
    made.add_argument("--prompt-tokens", type=int, default=40)
    made.add_argument("--answer-tokens", type=int, default=32)
    made.add_argument("--timeout", type=float, default=60.0, help="seconds for one request")
    made.add_argument("--slo-latency", type=float, default=2.0, help="seconds")
    made.add_argument("--slo-ttft", type=float, help="seconds")
    made.add_argument("--slo-gap", type=float, help="seconds, mean of a stream's tokens")
    made.add_argument("--processes", type=int, default=1)
    made.add_argument("--json", type=Path, help="write all samples there")
    made.add_argument("--report", type=Path, default=REPORTS / "drive.html")
    return made


def schedules(given: argparse.Namespace) -> Iterator[tuple[str, list[Due]]]:
    """The name of each run, and what is asked when. Raises TraceUnreadable, OSError."""
    if given.trace is not None:
        arrivals = slice_trace(read_trace(given.trace), given.seconds, given.speed)
        wanted = from_trace(arrivals, given.model, given.seed, largest=given.largest)
        due = [(arrival.at_s, ask) for arrival, ask in zip(arrivals, wanted, strict=True)]
        yield f"{given.trace.name}, {given.speed:g} × as fast", due
        return
    mix = Mix(prompt_tokens=given.prompt_tokens, answer_tokens=given.answer_tokens)
    wanted = asks(mix, given.model, given.seed)
    for rate in given.rate:
        times = ARRIVALS[given.arrivals](rate, given.seconds, given.seed)
        yield f"{rate:g}/s", list(zip(times, itertools.islice(wanted, len(times)), strict=True))


def main() -> int:
    given = parser().parse_args()
    facts = environment()
    slo = Slo(given.slo_latency, given.slo_ttft, given.slo_gap)
    runs: list[Run] = []
    try:
        target = Target.of(given.url)
        for name, due in schedules(given):
            print(f"{name}: {len(due)} requests in {given.seconds:g} s to {target.url}", flush=True)
            samples = drive_sharded(target, due, processes=given.processes, timeout_s=given.timeout)
            runs.append(Run.of(name, samples, given.seconds, slo))
    except (TraceUnreadable, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if given.json is not None:
        measured = [Measured(run.name, run.summary, list(run.samples)) for run in runs]
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(Result(facts, slo, measured))))
    page = runs_page("Open-loop run", runs, slo, facts)
    print(f"{write(page, given.report)}\n{page.verdict}")
    return 0 if any(run.summary.outcomes["ok"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
