from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point
from loadtests.open_loop import drive
from loadtests.samples import Outcome, Sample
from loadtests.wire import Client, Target, get, post
from loadtests.workload import Ask
from tests.drivers.waiting import eventually

PATH = "/v1/completions"
PLAIN = post(PATH, b'{"prompt":"a","max_tokens":3}')
STREAM = post(PATH, b'{"prompt":"a","max_tokens":3,"stream":true}')


@asynccontextmanager
async def client_of(behaviour: Behaviour) -> AsyncIterator[tuple[Client, Fake]]:
    async with Fake.start(behaviour) as fake:
        client = Client(Target(fake.host, fake.port))
        try:
            yield client, fake
        finally:
            client.close()


async def test_an_answer_is_read_to_its_end_and_its_connection_used_again() -> None:
    async with client_of(Behaviour()) as (client, fake):
        for _ in range(3):
            exchange = await client.call(PLAIN, keep=True)
            assert exchange.status == 200 and exchange.whole
            assert exchange.body is not None and exchange.body.startswith(b"{")
            assert exchange.ended_at >= exchange.sent_at
        assert fake.stats.connections_total == 1


async def test_a_stream_gives_a_time_for_each_token() -> None:
    async with client_of(Behaviour(tokens_per_s=100)) as (client, _):
        exchange = await client.call(STREAM, stream=True)
        assert exchange.whole
        assert exchange.tokens is not None and len(exchange.tokens.gaps) == 2
        assert exchange.tokens.first_at is not None


@pytest.mark.parametrize("how", [Ending.RESET, Ending.CLOSE, Ending.END, Ending.ERROR_EVENT])
async def test_a_stream_that_ends_early_is_not_whole(how: Ending) -> None:
    behaviour = Behaviour(cut=Cut(how=how, after=Point.CHUNKS, count=2))
    async with client_of(behaviour) as (client, _):
        exchange = await client.call(STREAM, stream=True)
        assert not exchange.whole


async def test_silence_ends_in_a_timeout_and_the_connection_is_not_used_again() -> None:
    async with client_of(Behaviour(cut=Cut(how=Ending.SILENCE))) as (client, _):
        exchange = await client.call(PLAIN, timeout_s=0.05)
        assert exchange.fault == "timeout"
        assert client.open == 0


async def test_a_server_that_is_not_there_is_a_fault() -> None:
    async with Fake.start() as fake:
        target = Target(fake.host, fake.port)
    exchange = await Client(target).call(get("/health"))
    assert exchange.fault.startswith("cannot connect")


async def test_a_connection_that_died_while_idle_is_replaced_unseen() -> None:
    async with client_of(Behaviour()) as (client, fake):
        await client.call(PLAIN)
        await fake.kill()
        await fake.start_again()
        exchange = await client.call(PLAIN)
        assert exchange.status == 200 and exchange.whole


async def test_the_open_loop_sends_when_due_whatever_became_of_the_first() -> None:
    behaviour = Behaviour(slots=1, delay_first_chunk_s=0.05)
    async with Fake.start(behaviour) as fake:
        seen: list[Sample] = []
        due = [(index * 0.001, Ask("x", PLAIN, False)) for index in range(5)]
        samples = await drive(Target(fake.host, fake.port), due, timeout_s=10, report=seen.append)
    assert seen == samples
    assert [sample.outcome for sample in samples] == [Outcome.OK] * 5
    last = max(sample.latency_s for sample in samples)
    assert last > 0.2, "the fifth waited for four others, and that counts"


async def test_refusals_are_told_from_errors_and_from_what_was_never_sent() -> None:
    refusing = Behaviour(status=503, headers={"Retry-After": "1"})
    async with Fake.start(refusing) as fake:
        target = Target(fake.host, fake.port)
        (refused,) = await drive(target, [(0.0, Ask("x", PLAIN, False))], timeout_s=5, report=lambda _: None)
    assert refused.outcome is Outcome.REFUSED and refused.retry_after
    async with Fake.start(Behaviour(status=500)) as fake:
        target = Target(fake.host, fake.port)
        (failed,) = await drive(target, [(0.0, Ask("x", PLAIN, False))], timeout_s=5, report=lambda _: None)
        assert failed.outcome is Outcome.ERROR and failed.status == 500
        both = [(0.0, Ask("x", PLAIN, False))] * 2
        samples = await drive(target, both, timeout_s=5, report=lambda _: None, limit=1)
    assert {sample.outcome for sample in samples} == {Outcome.ERROR, Outcome.UNSENT}


async def test_a_cancelled_run_leaves_no_connection() -> None:
    async with Fake.start(Behaviour(cut=Cut(how=Ending.SILENCE))) as fake:
        due = [(0.0, Ask("x", PLAIN, False))]
        run = asyncio.get_running_loop().create_task(
            drive(Target(fake.host, fake.port), due, timeout_s=60, report=lambda _: None), name="run"
        )
        await eventually(lambda: fake.stats.in_flight == 1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await eventually(lambda: fake.stats.in_flight == 0)


def test_an_address_without_a_host_says_how_to_give_one() -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Target.of("localhost:8000")
    assert Target.of("http://localhost:8000/").port == 8000
