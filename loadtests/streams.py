"""`python -m loadtests.streams --streams 1500`: many open streams, and what they do to health and memory.

Four fake engines, two tokens a second on each stream. While all are open, `/healthz` is asked every 0.1 s
on a connection of its own, as a prober does, and the gateway's memory is read. Last line: memory, the
slowest health answer, and the streams that were open.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from time import monotonic

import msgspec
import uvloop

from loadtests import changeover
from loadtests.processes import Server, ServerFailed, cores, end_on_sigterm
from loadtests.stats import percentile
from loadtests.wire import Client, Exchange, Target, get, post

ENGINES = 4
TOKENS_PER_S = 2.0
BODY = {"prompt": "Tell me a long story.", "max_tokens": 1000, "temperature": 1, "stream": True}
PROBE_EVERY_S = 0.1
OPENING_S = 60.0
"""Longest time until all streams have begun."""


@dataclass(slots=True)
class Found:
    open: int = 0
    ended: list[str] = field(default_factory=list)
    """Why streams ended that should not have."""
    healthz_s: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)


async def measure(target: Target, gateway: Server, streams: int, seconds: float) -> Found:
    """Open all, wait until each has begun, probe for `seconds`. Raises ServerFailed if they do not begin."""
    found = Found()
    client = Client(target, limit=streams)
    exchanges: list[Exchange] = []
    wire = post("/predict", msgspec.json.encode(BODY))

    early: list[str] = []

    def ended(exchange: Exchange) -> None:
        early.append(exchange.fault or f"status {exchange.status}")

    try:
        found.rss_mb.append(gateway.rss_mb())
        for _ in range(streams):
            exchanges.append(client.begin(wire, ended, stream=True, timeout_s=3600))
            await asyncio.sleep(0)
        await _until_begun(exchanges, early)
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            found.healthz_s.append(await _probe(target))
            found.rss_mb.append(gateway.rss_mb())
            await asyncio.sleep(PROBE_EVERY_S)
        found.open = sum(not exchange.ended_at for exchange in exchanges)
        found.ended = list(early)  # those that end from here on are closed by us
        return found
    finally:
        client.close()


async def _until_begun(exchanges: list[Exchange], ended: list[str]) -> None:
    deadline = monotonic() + OPENING_S
    while waiting := sum(e.tokens is None or e.tokens.first_at is None for e in exchanges):
        if ended or monotonic() > deadline:
            reasons = ", ".join(sorted(set(ended))) or "they are silent"
            raise ServerFailed(f"{waiting} of {len(exchanges)} streams did not begin: {reasons}")
        await asyncio.sleep(0.1)


async def _probe(target: Target) -> float:
    """Seconds for one health answer, connecting included."""
    client = Client(target, limit=1)
    start = monotonic()
    try:
        exchange = await client.call(get("/healthz"), timeout_s=10)
        return exchange.ended_at - start if exchange.status == 200 else float("inf")
    finally:
        client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.streams", description="Many open streams.")
    parser.add_argument("--streams", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    end_on_sigterm()
    core, load_core = cores()
    behaviour = {"tokens_per_s": TOKENS_PER_S}
    try:
        with (
            changeover.fakes([behaviour] * ENGINES, core=load_core) as engines,
            changeover.gateway({"endpoints": changeover.urls(engines)}, core=core) as (server, port),
        ):
            found = uvloop.run(measure(Target("127.0.0.1", port), server, given.streams, given.seconds))
    except ServerFailed as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return 1
    if found.ended:
        print(f"{len(found.ended)} streams ended early: {', '.join(sorted(set(found.ended)))}")
    ordered = sorted(found.healthz_s)
    print(
        f"before any stream: {found.rss_mb[0]:.0f} MB; /healthz P50 {percentile(ordered, 0.5) * 1e3:.1f} ms"
    )
    print(
        f"rss_mb={max(found.rss_mb):.0f} healthz_ms={ordered[-1] * 1e3:.1f} "
        f"healthz_p99_ms={percentile(ordered, 0.99) * 1e3:.1f} open={found.open}/{given.streams}"
    )
    return 0 if found.open == given.streams else 1


if __name__ == "__main__":
    sys.exit(main())
