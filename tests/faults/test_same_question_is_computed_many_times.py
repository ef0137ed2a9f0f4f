"""Fifty users ask the same at the same time, and the engine computes it fifty times, or fails fifty times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule
from gateway.flow import crowd
from gateway.observe.outcome import Outcome
from tests.drivers.many import many
from tests.drivers.raw import Peer, Response, ask, connected, request
from tests.drivers.slow import not_reading
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import Running, fakes, gateway_to

MANY = 50
COMPLETIONS, PREDICT = "/v1/completions", "/predict"
SAME: dict[str, Any] = {"prompt": "Hello", "max_tokens": 8, "temperature": 0}
STREAM: dict[str, Any] = {**SAME, "stream": True, "stream_options": {"include_usage": True}}
SLOW = Behaviour(delay_headers_s=0.3, version="v1")
PACED = Behaviour(tokens_per_s=20, version="v1")
OFF = {"type": "off"}


def calls(fake: Fake) -> int:
    return fake.stats.requests[COMPLETIONS]


@asynccontextmanager
async def asking(gateway: Running, path: str, body: dict[str, Any], count: int) -> AsyncIterator[list[Peer]]:
    """So many clients that have asked; returns when all of them are known to the gateway."""
    known = len(gateway.records) + gateway_guests(gateway)
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(gateway.url)) for _ in range(count)]
        for peer in peers:
            await peer.send(request(path, body))
        await eventually(lambda: len(gateway.records) + gateway_guests(gateway) >= known + count)
        yield peers


def gateway_guests(gateway: Running) -> int:
    return sum(type(one).__name__ == "Guest" for one in gateway.service.live)


async def answers(peers: list[Peer]) -> list[Response]:
    return list(await asyncio.gather(*(peer.response() for peer in peers)))


@pytest.mark.fault("F5")
@pytest.mark.parametrize("path", [COMPLETIONS, PREDICT])
@pytest.mark.parametrize("kept", [True, False], ids=["memory", "off"])
async def test_fifty_who_ask_the_same_share_one_call(path: str, kept: bool) -> None:
    cache = {} if kept else OFF
    async with fakes(1, SLOW) as (fake,), gateway_to(fake, cache=cache) as gateway:
        async with asking(gateway, path, SAME, MANY) as peers:
            got = await answers(peers)
        assert {answer.status for answer in got} == {200}
        assert len({answer.body for answer in got}) == 1
        states = sorted(str(answer.header("x-cache")) for answer in got)
        assert states == ["join"] * (MANY - 1) + ["miss"]
        assert len({answer.header("x-request-id") for answer in got}) == MANY
        assert calls(fake) == 1
        assert gateway.outcomes == {Outcome.OK: MANY}
        assert await gateway.metric("changeover_requests_total", outcome="ok") == MANY
        assert await gateway.metric("changeover_upstream_attempts_total", result="ok") == 1
        assert await gateway.metric("changeover_tokens_total", kind="completion") == 8


@pytest.mark.fault("F5")
async def test_fifty_streams_share_one_call() -> None:
    async with fakes(1, PACED) as (fake,), gateway_to(fake) as gateway:
        streams = (await many(MANY, lambda _: record(gateway.url, COMPLETIONS, STREAM))).all()
        assert all(stream.done for stream in streams)
        assert len({stream.content for stream in streams}) == 1
        assert calls(fake) == 1


@pytest.mark.fault("F5")
async def test_whoever_joins_a_stream_late_gets_all_of_it() -> None:
    async with fakes(1, PACED) as (fake,), gateway_to(fake) as gateway:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(record(gateway.url, COMPLETIONS, STREAM))
            await eventually(lambda: fake.stats.generation_tokens >= 4)
            late = group.create_task(record(gateway.url, COMPLETIONS, STREAM))
        assert first.result().content == late.result().content
        assert len(late.result().reads) > 1  # what had come, and then the rest as it came
        assert calls(fake) == 1


@pytest.mark.fault("F5")
@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, SAME), (COMPLETIONS, STREAM), (PREDICT, SAME)])
async def test_the_first_client_leaves_and_the_others_are_answered(path: str, body: dict[str, Any]) -> None:
    async with fakes(1, SLOW) as (fake,), gateway_to(fake) as gateway:
        async with asking(gateway, path, body, MANY) as peers:
            peers[0].close()
            await eventually(lambda: gateway.outcomes == {Outcome.CLIENT_GONE: 1})
            got = await answers(peers[1:])
        assert [answer.status for answer in got] == [200] * (MANY - 1)
        assert calls(fake) == 1
        assert fake.stats.gone_total == 0
        assert gateway.outcomes == {Outcome.CLIENT_GONE: 1, Outcome.OK: MANY - 1}


@pytest.mark.fault("F5")
async def test_the_first_client_leaves_in_mid_stream_and_the_others_read_on() -> None:
    async with fakes(1, PACED) as (fake,), gateway_to(fake) as gateway:
        async with connected(gateway.url) as first:
            await first.send(request(COMPLETIONS, STREAM))
            await first.receive()
            async with asking(gateway, COMPLETIONS, STREAM, 5) as others:
                first.close()
                got = await answers(others)
        assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in got)
        assert len({answer.body for answer in got}) == 1
        assert calls(fake) == 1


@pytest.mark.fault("A2")
async def test_when_all_have_left_the_engine_is_free() -> None:
    async with fakes(1, Behaviour(delay_headers_s=30)) as (fake,), gateway_to(fake) as gateway:
        async with asking(gateway, COMPLETIONS, SAME, 5):
            await eventually(lambda: fake.stats.in_flight == 1)
        await eventually(lambda: fake.stats.in_flight == 0, within=0.2)
        await eventually(lambda: gateway.outcomes == {Outcome.CLIENT_GONE: 5})
        assert gateway.members[0].failures == 0


FAILURES = {
    "reset": Rule(first=1, delay_headers_s=0.2, cut=Cut(how=Ending.RESET, after=Point.NOTHING)),
    "500": Rule(first=1, delay_headers_s=0.2, status=500),
    "503": Rule(first=1, delay_headers_s=0.2, status=503),
}


@pytest.mark.fault("F5")
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("body", [SAME, STREAM], ids=["json", "stream"])
async def test_a_failure_is_tried_once_more_for_all(failure: str, body: dict[str, Any]) -> None:
    async with fakes(1, Behaviour(rules=(FAILURES[failure],))) as (fake,), gateway_to(fake) as gateway:
        async with asking(gateway, COMPLETIONS, body, MANY) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200] * MANY
        assert calls(fake) == 2


@pytest.mark.fault("F5")
@pytest.mark.parametrize("status", [500, 503])
async def test_an_engine_that_goes_on_failing_is_asked_twice_and_not_fifty_times(status: int) -> None:
    failing = Behaviour(delay_headers_s=0.1, status=status)
    async with fakes(1, failing) as (fake,), gateway_to(fake) as gateway:
        async with asking(gateway, COMPLETIONS, SAME, MANY) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [status] * MANY
        assert calls(fake) == 2
        assert gateway.outcomes == {Outcome.BACKEND_ERROR: MANY}


@pytest.mark.fault("F5")
async def test_a_refusal_is_everybodys() -> None:
    async with fakes(1, Behaviour(delay_headers_s=0.1, status=422)) as (fake,), gateway_to(fake) as gateway:
        async with asking(gateway, COMPLETIONS, SAME, 5) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [422] * 5
        assert calls(fake) == 1
        assert gateway.outcomes == {Outcome.CLIENT_ERROR: 5}


@pytest.mark.fault("F5")
async def test_a_shared_stream_that_breaks_ends_in_an_error_for_each() -> None:
    broken = Behaviour(tokens_per_s=20, cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=3))
    async with fakes(1, broken) as (fake,), gateway_to(fake) as gateway:
        streams = (await many(5, lambda _: record(gateway.url, COMPLETIONS, STREAM))).all()
        assert all(len(stream.errors) == 1 and not stream.done for stream in streams)
        assert calls(fake) == 1
        assert gateway.outcomes == {Outcome.TRUNCATED: 5}


@pytest.mark.fault("F5")
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_fifty_who_want_different_answers_get_them(stream: bool) -> None:
    warm = {**SAME, "temperature": 1, "stream": stream}
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        await many(MANY, lambda _: ask(gateway.url, COMPLETIONS, warm))
        assert calls(fake) == MANY


async def test_the_tight_limit_of_one_hurts_no_other() -> None:
    async with fakes(1, SLOW) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as hasty:
        await hasty.send(request(COMPLETIONS, SAME, headers=[("x-request-timeout", "0.1")]))
        await eventually(lambda: fake.stats.in_flight == 1)
        async with asking(gateway, COMPLETIONS, SAME, 3) as peers:
            assert (await hasty.response()).status == 504
            assert [answer.status for answer in await answers(peers)] == [200] * 3
        assert gateway.outcomes == {Outcome.TIMEOUT: 1, Outcome.OK: 3}
        assert gateway.members[0].failures == 0


async def test_a_client_that_does_not_read_hurts_only_itself() -> None:
    """The answer is larger than what is held for those who are late."""
    size = 3 * crowd.MAX_HELD_BYTES
    behaviour = Behaviour(event_bytes=64 * 1024, delay_first_chunk_s=0.2)
    body = {**STREAM, "max_tokens": size // (64 * 1024)}
    async with fakes(1, behaviour) as (fake,), gateway_to(fake) as gateway:
        async with not_reading(gateway.url, request(COMPLETIONS, body)):
            await eventually(lambda: fake.stats.in_flight == 1)
            streams = (await many(3, lambda _: record(gateway.url, COMPLETIONS, body))).all()
            assert all(stream.done and len(stream.content) > size for stream in streams)
            await eventually(lambda: gateway.outcomes[Outcome.CLIENT_GONE] == 1)
        assert calls(fake) == 1


async def test_an_answer_that_outgrew_what_is_held_takes_in_no_one_more() -> None:
    behaviour = Behaviour(event_bytes=1024 * 1024, tokens_per_s=20)
    body = {**STREAM, "max_tokens": 10}
    async with fakes(1, behaviour) as (fake,), gateway_to(fake) as gateway:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(record(gateway.url, COMPLETIONS, body))
            await eventually(lambda: fake.stats.generation_tokens >= 7)
            late = group.create_task(record(gateway.url, COMPLETIONS, body))
        assert first.result().done
        assert late.result().done
        assert calls(fake) == 2
        assert await gateway.metric("changeover_cache_entries") == 0


async def test_each_client_pays_from_its_own_quota() -> None:
    key = {"name": "a", "sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}
    limited = {"keys": [{**key, "max_in_flight": 3}]}
    headers = [("authorization", "Bearer a")]
    async with fakes(1, SLOW) as (fake,), gateway_to(fake, auth=limited) as gateway:
        got = (await many(5, lambda _: ask(gateway.url, COMPLETIONS, SAME, headers=headers))).all()
        assert sorted(answer.status for answer in got) == [200, 200, 200, 429, 429]
        again = await ask(gateway.url, COMPLETIONS, SAME, headers=headers)
        assert again.status == 200
        assert msgspec.json.decode(again.body)["usage"]["completion_tokens"] == 8
        assert calls(fake) == 1


@pytest.mark.fault("F5")
async def test_one_who_joined_and_has_less_time_is_told_so_and_hurts_nobody() -> None:
    async with fakes(1, Behaviour(delay_headers_s=0.8)) as (fake,), gateway_to(fake) as gateway:
        async with asking(gateway, COMPLETIONS, SAME, 1) as [patient], connected(gateway.url) as hasty:
            await hasty.send(request(COMPLETIONS, SAME, headers=[("x-request-timeout", "0.2")]))
            late = await hasty.response()
            assert late.status == 504
            assert "queue;dur=0.0" in str(late.header("server-timing"))
            assert (await patient.response()).status == 200
        assert calls(fake) == 1
