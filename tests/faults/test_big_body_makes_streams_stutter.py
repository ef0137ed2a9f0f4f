"""One user uploads 20 MB, and the words of everybody else come in jerks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from backends.fake import Behaviour
from tests.drivers.process import running_fake, running_gateway
from tests.drivers.raw import ask, connected, request
from tests.drivers.waiting import paced
from tests.gateways import FORMS, QUICK, STREAMS

USERS = 100
EVENTS = 24
PACE_S = 0.05
STUTTER_S = 0.05
BODY_BYTES = 20 * 1024 * 1024 - 4096
TRIES = 3
"""A busy machine may make streams stutter once; the gateway would each time."""


def big(form: str) -> bytes:
    path, body = FORMS[form]
    text = "x" * BODY_BYTES
    said = {"messages": [{"role": "user", "content": text}]} if "messages" in body else {"prompt": text}
    return request(path, {**body, **said, "model": "large"})


ANSWER = '{"choices": [{"index": 0, "text": "", "message": {"content": ""}, "finish_reason": "stop"}]}'
BIG = [big(form) for form in ("completions", "chat", "predict")]


async def uploads(url: str) -> None:
    for asked in BIG:
        async with connected(url) as peer:
            await peer.send(asked)
            assert (await peer.response()).status == 200


async def scrapes(url: str) -> None:
    for _ in range(10):
        assert (await ask(url, "/metrics")).status == 200
        await paced(0.1)


@pytest.mark.alone
@pytest.mark.fault("G2")
@pytest.mark.parametrize("disturb", [uploads, scrapes])
async def test_streams_flow_on(disturb: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    slow = Behaviour(tokens=EVENTS, tokens_per_s=1 / PACE_S)
    reads = Behaviour(body=ANSWER, content_type="application/json")
    async with running_fake(slow) as fake, running_fake(reads, name="b") as other:
        models = [{"name": "small", "endpoints": [fake.url]}, {"name": "large", "endpoints": [other.url]}]
        async with running_gateway({**QUICK, "models": models, "cache": {"type": "off"}}) as gateway:
            stutters: list[float] = []
            while not stutters or (min(stutters) > STUTTER_S and len(stutters) < TRIES):
                alone = await longest_gap(gateway.url, paced(0))
                disturbed = await longest_gap(gateway.url, disturb(gateway.url))
                stutters.append(disturbed - alone)
            assert min(stutters) < STUTTER_S, stutters


async def longest_gap(url: str, meanwhile: Coroutine[Any, Any, None]) -> float:
    """Between two reads of a stream, for the stream of which it was least long: what holds up all."""
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(stream(url, number), name=f"stream {number}") for number in range(USERS)]
        group.create_task(meanwhile, name="disturbance")
    return min(task.result() for task in streams)


async def stream(url: str, number: int) -> float:
    """The longest time between two reads, the answer's beginning and end left out. Parses nothing."""
    path, body = list(STREAMS.values())[number % len(STREAMS)]
    times: list[float] = []
    async with connected(url) as peer:
        await peer.send(request(path, {**body, "model": "small"}))
        while b"[DONE]" not in peer.received[-100:]:
            assert await peer.receive()
            times.append(time.monotonic())
    return max(after - before for before, after in pairwise(times[2:-2]))
