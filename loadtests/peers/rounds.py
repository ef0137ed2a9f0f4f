"""Starts every peer, measures one after another, round after round, and keeps what each round gave.

All run from the beginning to the end; those whose turn it is not are stopped (SIGSTOP), so that they take
nothing from the core of the one that is measured. A peer that fails says why and is left out from then on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from loadtests.peers import wrk
from loadtests.peers.listener import Counted
from loadtests.processes import Server, ServerFailed

BODY = '{"model":"m","prompt":"The capital of France is","max_tokens":16,"temperature":0.7}'
CACHED_BODY = '{"model":"m","prompt":"The capital of France is","max_tokens":16,"temperature":0}'
MANY = 32
"""Connections under load."""
STREAMS = 64
SLOW_PER_S = 200.0
"""At one connection. What is slower is measured for at least `SLOW_S`, to see more than a few answers."""
SLOW_S = 4.0


@dataclass(slots=True)
class Measured:
    """One peer: a value for each round."""

    name: str
    why_not: str = ""
    """Not empty: it was not run, or failed."""
    per_s: list[float] = field(default_factory=list)
    p50_s: list[float] = field(default_factory=list)
    p99_s: list[float] = field(default_factory=list)
    alone_p50_s: list[float] = field(default_factory=list)
    """P50 at one connection."""
    cpu_per_request_s: list[float] = field(default_factory=list)
    cpu_per_event_s: list[float] = field(default_factory=list)
    events_per_s: list[float] = field(default_factory=list)
    rss_mb: float = float("nan")
    """After the load of the last round."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Seconds of each measurement, and how often."""

    rounds: int
    many: float
    alone: float
    streams: float


@dataclass(frozen=True, slots=True)
class Runner:
    """A server that is under test now."""

    server: Server
    port: int


Start = Callable[[ExitStack], Runner]
"""Starts a peer for as long as the stack lives. Raises ServerFailed or NotRun."""


def requests_round(
    runner: Runner,
    into: Measured,
    script: Path,
    lengths: Lengths,
    core: int,
    *,
    path: str = "/v1/completions",
    connections: int = MANY,
) -> None:
    """Plain requests: one connection, which warms it up, then many. Raises ServerFailed, WrkFailed."""
    url = f"http://127.0.0.1:{runner.port}{path}"
    alone = wrk.run(url, script, connections=1, seconds=lengths.alone, core=core)
    seconds = lengths.many if alone.per_s > SLOW_PER_S else max(lengths.many, SLOW_S)
    before = runner.server.cpu_s()
    many = wrk.run(url, script, connections=connections, seconds=seconds, core=core)
    spent = runner.server.cpu_s() - before
    if many.failed or not many.requests:
        raise ServerFailed(f"{many.failed} of {many.requests} requests failed")
    into.per_s.append(many.per_s)
    into.p50_s.append(many.p50_s)
    into.p99_s.append(many.p99_s)
    into.cpu_per_request_s.append(spent / many.requests)
    if alone.requests:
        into.alone_p50_s.append(alone.p50_s)
    into.rss_mb = runner.server.rss_mb()


def streams_round(runner: Runner, into: Measured, lengths: Lengths, core: int) -> None:
    """Streams, by a listener of its own on the load's core. Raises ServerFailed."""
    command = ["taskset", "-c", str(core), sys.executable, "-m", "loadtests.peers.listener"]
    command += ["--port", str(runner.port), "--pid", str(runner.server.pid)]
    command += ["--streams", str(STREAMS), "--seconds", str(lengths.streams)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=lengths.streams + 60, check=False)
    if done.returncode != 0:
        raise ServerFailed(f"the listener failed: {done.stderr.strip()[-200:]}")
    counted = msgspec.json.decode(done.stdout.encode(), type=Counted)
    if counted.streams < STREAMS or not counted.events:
        raise ServerFailed(f"only {counted.streams} of {STREAMS} streams were open")
    into.cpu_per_event_s.append(counted.cpu_per_event_s)
    into.events_per_s.append(counted.events / counted.seconds)


def alternate(
    starts: Sequence[tuple[Measured, Start]],
    rounds: int,
    measure: Callable[[Runner, Measured], None],
    failures: tuple[type[Exception], ...],
    say: Callable[[str], None],
) -> None:
    """Run `measure` for every peer in turn, `rounds` times; one that raises a failure is not run again."""
    with ExitStack() as stack:
        runners: list[tuple[Measured, Runner]] = []
        for measured, begin in starts:
            try:
                runner = begin(stack)
            except failures as error:
                measured.why_not = str(error)
                say(f"  {measured.name}: not run: {error}")
                continue
            runner.server.pause()
            runners.append((measured, runner))
        for number in range(1, rounds + 1):
            for measured, runner in runners:
                if measured.why_not:
                    continue
                runner.server.go_on()
                try:
                    measure(runner, measured)
                    say(f"  round {number} of {rounds}: {measured.name}{_latest(measured)}")
                except failures as error:
                    measured.why_not = f"failed in round {number}: {error}"
                    say(f"  {measured.name}: {measured.why_not}")
                runner.server.pause()


def _latest(measured: Measured) -> str:
    parts = []
    if measured.per_s:
        parts.append(f"{measured.per_s[-1]:,.0f} requests/s")
    if measured.cpu_per_event_s:
        parts.append(f"{measured.cpu_per_event_s[-1] * 1e6:.1f} µs an event")
    return ": " + ", ".join(parts) if parts else ""
