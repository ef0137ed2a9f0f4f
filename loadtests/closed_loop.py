"""The closed loop: so many clients, each asks again when it has its answer. For throughput, not for latency.

All clients are callbacks on one event loop, so that the generator stays cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import monotonic

from loadtests.open_loop import sample_of
from loadtests.samples import Outcome, Sample
from loadtests.wire import Client, Exchange, Target
from loadtests.workload import Ask

TIMEOUT_S = 120.0
WORST_SHARE = 0.01
"""More failures than this, and the figures mean nothing."""


class TooManyFailed(RuntimeError):
    """The server did not answer; says what it did."""


async def ask_in_turn(target: Target, asks: Iterator[Ask], clients: int, seconds: float) -> list[Sample]:
    """Ask for `seconds`; answers that come later count for nothing. Raises TooManyFailed."""
    client = Client(target, limit=clients)
    start = monotonic()
    samples: list[Sample] = []

    def begin() -> None:
        ask, due = next(asks), monotonic()

        def done(exchange: Exchange) -> None:
            if exchange.ended_at - start >= seconds:
                return
            samples.append(sample_of(exchange, ask.label, due - start, due))
            client.loop.call_soon(begin)

        client.begin(ask.wire, done, stream=ask.stream, timeout_s=TIMEOUT_S)

    try:
        for _ in range(clients):
            begin()
        await asyncio.sleep(seconds)
    finally:
        client.close()
    failed = [sample for sample in samples if sample.outcome is not Outcome.OK]
    if len(failed) > WORST_SHARE * max(1, len(samples)) or not samples:
        statuses = ", ".join(sorted({f"{sample.outcome} {sample.status}" for sample in failed}))
        raise TooManyFailed(f"{len(failed)} of {len(samples)} failed: {statuses or 'no answer came'}")
    return samples
