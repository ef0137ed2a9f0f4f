"""`python -m loadtests.bench_batch [--quick]`: batched `/predict` against the same clients calling vLLM.

One real engine; 64 clients ask it directly (`/v1/completions`) and through the gateway (`/predict`), in turn,
with different prompts each time. Last line: prompts a second through the gateway as a multiple of direct,
for 1 token, 8 tokens, and 64 to 256 tokens mixed; the median of the pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec
import uvloop

from loadtests import changeover
from loadtests.closed_loop import TooManyFailed, ask_in_turn
from loadtests.environment import REPORTS, environment
from loadtests.processes import ServerFailed, end_on_sigterm
from loadtests.stats import Spread, median, paired_ratio, percentile
from loadtests.wire import Target, post
from loadtests.workload import Ask, text
from reports.page import Cell, Plot, Report, Series, Table, text_table, write

CLIENTS = 64
PROMPT_TOKENS = 30


@dataclass(frozen=True, slots=True)
class Lengths:
    pairs: int
    short_s: float
    """One measurement of 1 or 8 tokens."""
    long_s: float
    """One of mixed lengths, in which an answer takes seconds."""


QUICK = Lengths(pairs=2, short_s=4, long_s=8)
FULL = Lengths(pairs=5, short_s=8, long_s=20)


@dataclass(slots=True)
class Case:
    """One length of answers, and the prompts a second and P99 of each round, both ways."""

    key: str
    name: str
    shortest: int
    longest: int
    direct: list[float] = field(default_factory=list)
    through: list[float] = field(default_factory=list)
    direct_p99_s: list[float] = field(default_factory=list)
    through_p99_s: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return paired_ratio(self.through, self.direct)


def cases() -> list[Case]:
    return [
        Case("1tok", "1 token", 1, 1),
        Case("8tok", "8 tokens", 8, 8),
        Case("mixed", "64 to 256 tokens", 64, 256),
    ]


def asks(path: str, case: Case, model: str, seed: int) -> Iterator[Ask]:
    """Prompts that are all different, of the same lengths for equal seeds, answered to the last token."""
    random = Random(seed)
    while True:
        tokens = random.randint(case.shortest, case.longest)
        prompt = text(PROMPT_TOKENS, random)
        body: dict[str, object] = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        body |= {"parameters": {"ignore_eos": True}} if path == "/predict" else {"ignore_eos": True}
        yield Ask(path, post(path, msgspec.json.encode(body)), False)


def measure(case: Case, engine: int, gateway: int, model: str, lengths: Lengths) -> None:
    seconds = lengths.long_s if case.longest > 8 else lengths.short_s
    for pair in range(lengths.pairs):
        ways = [
            ("/v1/completions", engine, case.direct, case.direct_p99_s),
            ("/predict", gateway, case.through, case.through_p99_s),
        ]
        for way, (path, port, rates, p99s) in enumerate(ways if pair % 2 == 0 else reversed(ways)):
            # Other prompts each time: neither the gateway's cache nor the engine's may know them.
            seed = 1000 * pair + 100 * way + case.longest
            target = Target("127.0.0.1", port)
            samples = uvloop.run(ask_in_turn(target, asks(path, case, model, seed), CLIENTS, seconds))
            rates.append(len(samples) / seconds)
            p99s.append(percentile(sorted(sample.latency_s for sample in samples), 0.99))
        print(
            f"  {case.name}, pair {pair + 1} of {lengths.pairs}: direct {case.direct[-1]:.1f}/s, "
            f"through /predict {case.through[-1]:.1f}/s",
            flush=True,
        )


def verdict(measured: list[Case]) -> str:
    return " ".join(f"batch_vs_direct_{case.key}={case.ratio:.2f}" for case in measured)


def table(measured: list[Case], note: str) -> Table:
    columns = ["answers", "direct/s", "spread", "/predict/s", "spread ", "ratio", "direct P99 ms"]
    return Table(
        title=f"{CLIENTS} clients, one engine",
        columns=[*columns, "/predict P99 ms"],
        rows=[_row(case) for case in measured],
        note=note,
    )


def _row(case: Case) -> list[Cell]:
    direct, through = Spread.of(case.direct), Spread.of(case.through)
    return [
        case.name,
        direct.median,
        f"{direct.low:.4g}–{direct.high:.4g}",
        through.median,
        f"{through.low:.4g}–{through.high:.4g}",
        case.ratio,
        median(case.direct_p99_s) * 1e3,
        median(case.through_p99_s) * 1e3,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_batch", description="Batching.")
    parser.add_argument("--quick", action="store_true", help="shorter, fewer pairs")
    parser.add_argument("--model", default="tiny-llama", help="built in, a folder, or a hub id")
    parser.add_argument("--max-batch-size", type=int, default=32, help="the engine's")
    given = parser.parse_args()
    end_on_sigterm()
    facts = environment()
    lengths = QUICK if given.quick else FULL
    engine_settings = {"model": given.model, "max_batch_size": given.max_batch_size, "served_name": "m"}
    measured = cases()
    print("starting the engine", flush=True)
    try:
        with (
            changeover.engines(engine_settings, 1) as engines,
            changeover.gateway({"endpoints": changeover.urls(engines), "logging": {"requests": False}}) as (
                _,
                gateway,
            ),
        ):
            for case in measured:
                measure(case, engines[0], gateway, "m", lengths)
    except (ServerFailed, TooManyFailed) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 1
    note = f"{given.model}, max_batch_size {given.max_batch_size}; medians of {lengths.pairs} pairs in turn."
    shown = table(measured, note)
    line = verdict(measured)
    bars = [Series(case.name, [(0.0, case.ratio)]) for case in measured]
    page = Report(
        title="Batched /predict against direct calls",
        lead="The same clients, prompts of the same kind and one engine; everything on in the gateway.",
        verdict=line,
        tables=[shown],
        plots=[
            Plot(title="Prompts/s, as a multiple of direct", y="through / direct", kind="bars", series=bars)
        ],
        facts=facts,
    )
    print(f"\n{note}\n{text_table(shown)}\n\n{write(page, REPORTS / 'batch.html')}\n{line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
