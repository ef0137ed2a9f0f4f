"""The open loop: requests go out when they are due, whatever became of those before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from loadtests.samples import Outcome, Sample
from loadtests.wire import Client, Exchange, Target
from loadtests.workload import Ask

Due = tuple[float, Ask]
"""Seconds from the start, and what is asked then."""
Report = Callable[[Sample], None]

REFUSED = (429, 503)


async def drive(
    target: Target,
    schedule: Sequence[Due],
    *,
    timeout_s: float,
    report: Report,
    limit: int = 10_000,
    start_in_s: float = 0.0,
) -> list[Sample]:
    """Send everything when due; return when all of it has ended, in order of ending.

    `report` sees each sample as it is made. `timeout_s` is for each request, from when it was sent. On
    cancellation all connections are dropped.
    """
    client = Client(target, limit=limit)
    start = monotonic() + start_in_s
    samples: list[Sample] = []
    ended = asyncio.Event()

    def note(sample: Sample) -> None:
        samples.append(sample)
        report(sample)
        if len(samples) == len(schedule):
            ended.set()

    try:
        for at_s, ask in schedule:
            ahead = start + at_s - monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            done = _recorder(ask, at_s, start, note)
            if not client.send(ask.wire, done, stream=ask.stream, timeout_s=timeout_s):
                note(Sample(ask.label, at_s, 0.0, Outcome.UNSENT))
        if schedule:
            await ended.wait()
    finally:
        client.close()
    return samples


def _recorder(ask: Ask, at_s: float, start: float, note: Report) -> Callable[[Exchange], None]:
    def done(exchange: Exchange) -> None:
        note(sample_of(exchange, ask.label, at_s, start + at_s))

    return done


def sample_of(exchange: Exchange, label: str, at_s: float, due: float) -> Sample:
    """What an exchange comes to that was due at `due` of the monotonic clock."""
    tokens = exchange.tokens
    first = tokens.first_at if tokens is not None else None
    return Sample(
        label=label,
        at_s=at_s,
        latency_s=exchange.ended_at - due,
        outcome=_outcome(exchange),
        status=exchange.status,
        ttft_s=first - due if first is not None else None,
        gaps_s=tuple(tokens.gaps) if tokens is not None else (),
        retry_after=b"retry-after" in exchange.headers,
        late_s=max(0.0, exchange.sent_at - due),
    )


def _outcome(exchange: Exchange) -> Outcome:
    if exchange.fault == "timeout":
        return Outcome.TIMEOUT
    if exchange.status in REFUSED and not exchange.fault:
        return Outcome.REFUSED
    return Outcome.OK if exchange.status == 200 and exchange.whole else Outcome.ERROR
