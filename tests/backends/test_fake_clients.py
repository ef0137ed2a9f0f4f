"""The fake engine notices when its client goes away, at whatever point, and its counts stay true."""

from __future__ import annotations

import time
from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point
from tests.drivers.blackhole import blackhole
from tests.drivers.leaving import AfterBytes, AfterEvents, How, WhileWaiting, leave
from tests.drivers.many import many
from tests.drivers.raw import ask, connected, request
from tests.drivers.slow import not_reading, read_slowly
from tests.drivers.waiting import eventually

COMPLETIONS = "/v1/completions"
PLAIN: dict[str, Any] = {"prompt": "Hello", "max_tokens": 8}
STREAM: dict[str, Any] = {**PLAIN, "stream": True}
NAMED = [("x-request-id", "r-1")]


@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("body", [PLAIN, STREAM], ids=["plain", "stream"])
async def test_a_client_that_leaves_while_it_waits(how: How, body: dict[str, Any]) -> None:
    async with Fake.start(Behaviour(delay_headers_s=30)) as fake:
        waiting = WhileWaiting(lambda: eventually(lambda: fake.stats.in_flight == 1))
        left = await leave(fake.url, request(COMPLETIONS, body, headers=NAMED), waiting, how)
        await eventually(lambda: fake.stats.in_flight == 0)
    (gone,) = fake.stats.gone
    assert (gone.path, gone.request_id, gone.waiting) == (COMPLETIONS, "r-1", True)
    assert abs(gone.at_s - left.at_s) < 1
    assert left.received == b""


@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("events", [0, 1, 3])
async def test_a_client_that_leaves_in_mid_stream(how: How, events: int) -> None:
    behaviour = Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=3))
    async with Fake.start(behaviour) as fake:
        await leave(fake.url, request(COMPLETIONS, STREAM), AfterEvents(events), how)
        await eventually(lambda: fake.stats.in_flight == 0)
    (gone,) = fake.stats.gone
    assert not gone.waiting
    assert fake.stats.events[-1]["event"] == "client gone"


@pytest.mark.parametrize("count", [1, 20, 100])
async def test_a_client_that_leaves_in_its_request_is_no_request(count: int) -> None:
    async with Fake.start() as fake:
        await leave(fake.url, request(COMPLETIONS, PLAIN), AfterBytes(count))
        await eventually(lambda: fake.stats.connections_total == 1 and fake.stats.connections_open == 0)
    assert not fake.stats.requests and not fake.stats.gone


async def test_a_client_that_leaves_the_queue_gives_up_its_place() -> None:
    async with Fake.start(Behaviour(slots=1, delay_first_chunk_s=30)) as fake, connected(fake.url) as running:
        await running.send(request(COMPLETIONS, PLAIN))
        await eventually(lambda: fake.engine.running == 1)
        waiting = WhileWaiting(lambda: eventually(lambda: fake.engine.waiting == 1))
        await leave(fake.url, request(COMPLETIONS, PLAIN), waiting)
        await eventually(lambda: fake.engine.waiting == 0)
        assert (fake.engine.running, fake.stats.in_flight) == (1, 1)
        running.close()
        await eventually(lambda: fake.engine.running == 0)


async def test_counts_are_true_after_clients_of_every_kind() -> None:
    async with Fake.start(Behaviour(slots=4, tokens_per_s=2000)) as fake:

        async def client(number: int) -> int:
            if number % 3 == 0:
                await leave(fake.url, request(COMPLETIONS, STREAM), AfterEvents(number % 5), How.RESET)
                return 0
            if number % 3 == 1:
                arrived = fake.stats.requests.total()
                waiting = WhileWaiting(lambda: eventually(lambda: fake.stats.requests.total() > arrived))
                await leave(fake.url, request(COMPLETIONS, PLAIN), waiting)
                return 0
            return (await ask(fake.url, COMPLETIONS, PLAIN)).status

        outcomes = await many(150, client, at_a_time=30)
        assert outcomes.counts(int) == {0: 100, 200: 50}
        await eventually(lambda: fake.stats.connections_open == 0)
        assert (fake.stats.in_flight, fake.engine.running, fake.engine.waiting) == (0, 0, 0)


async def test_a_slow_reader_reads_slowly() -> None:
    async with (
        Fake.start(Behaviour(body_bytes=10_000_000)) as fake,
        not_reading(fake.url, request(COMPLETIONS, PLAIN)) as peer,
    ):
        began = time.monotonic()
        assert await read_slowly(peer, bytes_per_s=10_000, most=1_000) == 1_000
        assert time.monotonic() - began >= 0.09
        assert fake.stats.in_flight == 1


async def test_nobody_answers_in_a_black_hole() -> None:
    import asyncio

    with blackhole() as url, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), connected(url):
            pass
