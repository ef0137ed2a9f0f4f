"""`python -m loadtests.bench_prefix [--quick]`: routing by prefix on real engines.

Two engines whose KV cache holds more than half of the shared prefixes but not all: who sends a prefix to
where it is known finds it there, who does not computes it again. The rate is what round robin can just bear,
found by a closed loop first. Then, in turn and with prefixes of its own in each round: our policies `prefix`,
`round_robin` and `least_load`, and vllm-router's `cache_aware`. Last line: mean time to the first token, as a
multiple of `prefix`'s.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import uvloop

from loadtests import changeover
from loadtests.arrivals import poisson
from loadtests.closed_loop import TooManyFailed, ask_in_turn
from loadtests.environment import REPORTS, environment
from loadtests.open_loop import Due
from loadtests.peers.catalog import Place, cache_aware
from loadtests.peers.install import NotRun, from_package
from loadtests.processes import ServerFailed, end_on_sigterm, free_ports, running
from loadtests.samples import Outcome, Sample
from loadtests.shards import drive_sharded
from loadtests.stats import distribution, mean, median, paired_ratio, percentile
from loadtests.wire import Target, post
from loadtests.workload import Ask, text
from reports.page import Cell, Plot, Report, Series, Table, text_table, write

ENGINES = 2
PREFIXES = 10
ANSWER_TOKENS = 8
QUESTION_TOKENS = 20
CLIENTS = 8
"""Of the closed loop that finds the rate."""
OURS = "prefix"
CACHE_AWARE = "vllm-router cache_aware"
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Lengths:
    rounds: int
    find_s: float
    """Of the closed loop."""
    run_s: float


QUICK = Lengths(rounds=1, find_s=10, run_s=15)
FULL = Lengths(rounds=3, find_s=25, run_s=40)


@dataclass(slots=True)
class Way:
    """One router, and the times to the first token of each round, in seconds."""

    name: str
    rounds: list[list[float]] = field(default_factory=list)
    failed: int = 0
    why_not: str = ""

    @property
    def means(self) -> list[float]:
        return [mean(times) for times in self.rounds]


def asks(seed: int, prefix_chars: int) -> Iterator[Ask]:
    """The prefixes once each, so that all are known; then questions behind one of them, at random."""
    random = Random(seed)
    prefixes = [text(prefix_chars, random)[:prefix_chars] for _ in range(PREFIXES)]
    for prefix in prefixes:
        yield _ask(prefix, random)
    while True:
        yield _ask(random.choice(prefixes), random)


def _ask(prefix: str, random: Random) -> Ask:
    body = {
        "model": "m",
        "prompt": f"{prefix}\n{text(QUESTION_TOKENS, random)}",
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    return Ask("/v1/completions", post("/v1/completions", msgspec.json.encode(body)), True)


def run_round(way: Way, port: int, seed: int, rate: float, seconds: float, prefix_chars: int) -> None:
    """Make the prefixes known, then send at the rate."""
    target = Target("127.0.0.1", port)
    wanted = asks(seed, prefix_chars)
    known = [(0.0, ask) for ask in itertools.islice(wanted, PREFIXES)]
    _drive(target, known)
    due: list[Due] = [(at, next(wanted)) for at in poisson(rate, seconds, seed)]
    samples = _drive(target, due)
    ok = [sample.ttft_s for sample in samples if sample.outcome is Outcome.OK]
    way.failed += len(samples) - len(ok)
    way.rounds.append([ttft for ttft in ok if ttft is not None])


def _drive(target: Target, due: list[Due]) -> list[Sample]:
    return drive_sharded(target, due, processes=1, timeout_s=TIMEOUT_S, quiet=True)


def find_rate(port: int, seconds: float, prefix_chars: int) -> float:
    """What round robin answers a second when it always has enough to do. Raises TooManyFailed."""
    wanted = asks(0, prefix_chars)
    target = Target("127.0.0.1", port)
    samples = uvloop.run(ask_in_turn(target, wanted, CLIENTS, seconds))
    return len(samples) / seconds


Ports = dict[str, int]


def start_ways(stack: ExitStack, engines: list[int], folder: Path) -> tuple[list[Way], Ports]:
    """A gateway for each of our policies, and vllm-router."""
    ways, ports = [], {}
    for policy in (OURS, "round_robin", "least_load"):
        settings = {"endpoints": changeover.urls(engines), "routing": {"policy": policy}}
        _, port = stack.enter_context(changeover.gateway(settings, name=f"gateway-{policy}"))
        ways.append(Way(policy))
        ports[policy] = port
    peer = Way(CACHE_AWARE)
    ways.append(peer)
    port, spare = free_ports(2)
    try:
        place = Place(from_package("vllm-router"), port, spare, engines, folder)
        stack.enter_context(running("vllm-router", cache_aware(place), port=port))
        ports[CACHE_AWARE] = port
    except (NotRun, ServerFailed) as error:
        peer.why_not = str(error)
        print(f"  {CACHE_AWARE}: not run: {error}", flush=True)
    return ways, ports


def measure(ways: list[Way], ports: Ports, rate: float, lengths: Lengths, prefix_chars: int) -> None:
    for number in range(lengths.rounds):
        for index, way in enumerate(ways):
            if way.why_not:
                continue
            seed = 1000 * (number + 1) + index
            run_round(way, ports[way.name], seed, rate, lengths.run_s, prefix_chars)
            print(f"  round {number + 1}: {way.name}: mean TTFT {way.means[-1] * 1e3:.0f} ms", flush=True)


def verdict(ways: list[Way]) -> str:
    known = {way.name: way for way in ways}
    return (
        f"ttft_rr_over_prefix={_over(known['round_robin'], known[OURS])} "
        f"ttft_cache_aware_over_prefix={_over(known[CACHE_AWARE], known[OURS])}"
    )


def _over(other: Way, ours: Way) -> str:
    return f"{paired_ratio(other.means, ours.means):.2f}" if other.rounds else "nan"


def table(ways: list[Way], note: str) -> Table:
    columns = ["routing", "mean TTFT ms", "P50 ms", "P99 ms", "answers", "failed", ""]
    return Table(
        title="Time to the first token", columns=columns, rows=[_row(way) for way in ways], note=note
    )


def _row(way: Way) -> list[Cell]:
    every = sorted(itertools.chain.from_iterable(way.rounds))
    return [
        way.name,
        median(way.means) * 1e3,
        percentile(every, 0.5) * 1e3,
        percentile(every, 0.99) * 1e3,
        len(every),
        way.failed,
        f"not run: {way.why_not}" if way.why_not else "",
    ]


def plot(ways: list[Way]) -> Plot:
    def points(way: Way) -> list[tuple[float, float | None]]:
        every = list(itertools.chain.from_iterable(way.rounds))
        return [(value * 1e3, share * 100) for value, share in distribution(every)]

    return Plot(
        title="Time to the first token",
        x="ms",
        y="% at or below",
        log_x=True,
        dots=False,
        series=[Series(way.name, points(way)) for way in ways if way.rounds],
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m loadtests.bench_prefix", description="Prefix routing.")
    made.add_argument("--quick", action="store_true", help="one short round")
    made.add_argument("--model", default="smollm2-135m-instruct", help="built in, a folder, or a hub id")
    made.add_argument("--prefix-chars", type=int, default=5000, help="length of a shared prefix")
    made.add_argument("--kv-cache-gib", type=float, default=0.2, help="of each engine")
    made.add_argument("--rate", type=float, help="requests a second; default: what round robin can bear")
    return made


def main() -> int:
    given = parser().parse_args()
    end_on_sigterm()
    facts = environment()
    lengths = QUICK if given.quick else FULL
    settings = {"model": given.model, "served_name": "m", "kv_cache_gib": given.kv_cache_gib}
    print(f"starting {ENGINES} engines", flush=True)
    with ExitStack() as stack:
        try:
            engines = stack.enter_context(changeover.engines({**settings, "max_model_len": 2048}, ENGINES))
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="prefix-")))
            ways, ports = start_ways(stack, engines, folder)
            rate = given.rate or find_rate(ports["round_robin"], lengths.find_s, given.prefix_chars)
            print(f"round robin bears {rate:.2f} requests/s; all get that", flush=True)
            measure(ways, ports, rate, lengths, given.prefix_chars)
        except (ServerFailed, TooManyFailed) as error:
            print(f"cannot measure: {error}", file=sys.stderr)
            return 1
    note = (
        f"{given.model}, {ENGINES} engines with {given.kv_cache_gib:g} GiB of KV cache each, {PREFIXES} "
        f"shared prefixes of {given.prefix_chars} characters, {rate:.2f} requests/s, {lengths.rounds} rounds."
    )
    shown = table(ways, note)
    line = verdict(ways)
    page = Report(
        title="Routing by prefix",
        lead="The same engines, rate and kind of requests; what differs is who chooses the engine.",
        verdict=line,
        tables=[shown],
        plots=[plot(ways)],
        facts=facts,
    )
    print(f"\n{note}\n{text_table(shown)}\n\n{write(page, REPORTS / 'prefix.html')}\n{line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
