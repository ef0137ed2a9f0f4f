"""A user gets an answer from the cache that the engine would not have given to what was asked."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule
from backends.fake.words import prompt_ids
from gateway.observe.outcome import Outcome
from tests.drivers.framing import FramingError
from tests.drivers.raw import Response, ask, connected, request
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import Running, fakes, gateway_to

TEXT: dict[str, Any] = {"prompt": "Hello", "max_tokens": 4, "temperature": 0}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 4,
    "temperature": 0,
}
COMPLETIONS, CHATS, PREDICT = "/v1/completions", "/v1/chat/completions", "/predict"
USAGE = {"include_usage": True}
V1 = Behaviour(version="v1")


def state(answer: Response) -> str | None:
    return answer.header("x-cache")


def calls(fake: Fake) -> int:
    return fake.stats.requests[COMPLETIONS] + fake.stats.requests[CHATS]


@pytest.mark.fault("F1")
@pytest.mark.parametrize(
    "change",
    [
        *({"max_tokens": 5}, {"top_p": 0.5}, {"top_k": 3}, {"stop": ["x"]}, {"seed": 1}, {"logprobs": 1}),
        *({"response_format": {"type": "text"}}, {"tools": []}, {"unheard_of": 1}, {"prompt": "hello"}),
        *({"min_p": 0.1}, {"cache_salt": "a"}, {"model": "other"}, {"user": "bob"}),
    ],
    ids=str,
)
async def test_a_field_that_differs_is_a_miss(change: dict[str, Any]) -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        assert state(await ask(gateway.url, COMPLETIONS, TEXT)) == "miss"
        assert state(await ask(gateway.url, COMPLETIONS, TEXT)) == "hit"
        assert state(await ask(gateway.url, COMPLETIONS, {**TEXT, **change})) == "miss"


@pytest.mark.fault("F1")
async def test_the_same_in_another_order_is_a_hit() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        json = [("content-type", "application/json")]
        first = b'{"prompt":"Hello","temperature":0,"max_tokens":4,"top_p":1}'
        again = b'{ "top_p": 1.0, "max_tokens" : 4.0, "temperature": 0.0, "prompt": "Hello" }'
        await ask(gateway.url, COMPLETIONS, first, headers=json)
        answer = await ask(gateway.url, COMPLETIONS, again, headers=json)
        assert state(answer) == "hit"
        assert answer.header("age") == "0"
        assert calls(fake) == 1


@pytest.mark.fault("F2")
@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "Hello", "max_tokens": 4},
        {**TEXT, "temperature": 0.7},
        {**TEXT, "temperature": None},
        {**TEXT, "n": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", [COMPLETIONS, PREDICT])
async def test_what_may_differ_each_time_is_asked_each_time(path: str, body: dict[str, Any]) -> None:
    if path == PREDICT and "n" in body:
        body = {**TEXT, "parameters": {"n": 2}}
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        answers = [await ask(gateway.url, path, body) for _ in range(2)]
        assert [state(answer) for answer in answers] == ["bypass", "bypass"]
        assert calls(fake) == 2


async def test_the_caller_says_that_any_answer_will_do() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        warm = {"prompt": "Hello", "max_tokens": 4, "temperature": 1}
        old = [("cache-control", "max-age=60")]
        for expected in ("miss", "hit"):
            assert state(await ask(gateway.url, COMPLETIONS, warm, headers=old)) == expected
        assert state(await ask(gateway.url, PREDICT, {**warm, "cache": True})) == "hit"
        assert calls(fake) == 1


async def test_the_caller_says_that_a_kept_answer_will_not_do() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        await ask(gateway.url, COMPLETIONS, TEXT)
        for directive in ("no-cache", "no-store", "max-age=0"):
            answer = await ask(gateway.url, COMPLETIONS, TEXT, headers=[("cache-control", directive)])
            assert state(answer) == "bypass"
        assert state(await ask(gateway.url, PREDICT, {**TEXT, "cache": False})) == "bypass"
        assert calls(fake) == 5


async def test_an_answer_that_the_caller_keeps_to_himself_is_not_kept() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        await ask(gateway.url, COMPLETIONS, TEXT, headers=[("cache-control", "no-store")])
        assert state(await ask(gateway.url, COMPLETIONS, TEXT)) == "miss"
        assert calls(fake) == 2


BAD: dict[str, Behaviour] = {
    "500": Behaviour(status=500),
    "400": Behaviour(status=400),
    "abort": Behaviour(finish_reason="abort"),
    "no choice": Behaviour(empty_choices=True),
    "not json": Behaviour(body="<html>", content_type="application/json"),
    "cut": Behaviour(cut=Cut(how=Ending.CLOSE, after=Point.BYTES, count=40)),
    "reset": Behaviour(cut=Cut(how=Ending.RESET, after=Point.BYTES, count=40)),
    "no end": Behaviour(cut=Cut(how=Ending.END, after=Point.CHUNKS, count=2)),
    "error event": Behaviour(cut=Cut(how=Ending.ERROR_EVENT, after=Point.CHUNKS, count=2)),
    "compressed": Behaviour(gzip=True),
}


@pytest.mark.fault("F3")
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("path", "body"), [(CHATS, CHAT), (PREDICT, TEXT)])
async def test_a_bad_answer_is_never_kept(path: str, body: dict[str, Any], bad: str, stream: bool) -> None:
    if bad in ("no end", "error event") and not stream:
        pytest.skip("only streams end so")
    async with fakes(1, BAD[bad]) as (fake,), gateway_to(fake, health={"traffic_failures": 100}) as gateway:
        asked = {**body, "stream": stream}
        async with connected(gateway.url) as peer:
            await peer.send(request(path, asked))
            with suppress(FramingError, ConnectionResetError):
                await peer.response()
        before = calls(fake)
        fake.behave(Behaviour())
        assert state(await ask(gateway.url, path, asked)) == "miss"
        assert calls(fake) == before + 1


@pytest.mark.fault("F4")
@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, TEXT), (CHATS, CHAT)], ids=["text", "chat"])
@pytest.mark.parametrize("first", [True, False], ids=["stream first", "json first"])
async def test_a_hit_has_the_form_that_was_asked_for(path: str, body: dict[str, Any], first: bool) -> None:
    streamed = {**body, "stream": True, "stream_options": USAGE}
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        own = msgspec.json.decode((await ask(fake.url, path, body)).body)
        own_stream = await record(fake.url, path, streamed)
        asked = calls(fake)
        if first:
            stream = await record(gateway.url, path, streamed)
            answer = await ask(gateway.url, path, body)
            assert state(answer) == "hit"
        else:
            answer = await ask(gateway.url, path, body)
            stream = await record(gateway.url, path, streamed)
            assert stream.head is not None
            assert stream.head.header("x-cache") == "hit"
        assert calls(fake) == asked + 1
        assert _timeless(msgspec.json.decode(answer.body)) == _timeless(own)
        assert stream.text() == own_stream.text()
        assert stream.done
        last, own_last = stream.json()[-1], own_stream.json()[-1]
        assert _timeless(last) == _timeless(own_last)
        assert stream.head is not None
        assert (stream.head.header("content-type") or "").startswith("text/event-stream")


def _timeless(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("id", "created")}


@pytest.mark.fault("F4")
async def test_predict_and_the_openai_route_share_answers() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        fresh = msgspec.json.decode((await ask(gateway.url, PREDICT, TEXT)).body)
        kept = msgspec.json.decode((await ask(gateway.url, PREDICT, TEXT)).body)
        assert (fresh.pop("cached"), kept.pop("cached")) == (False, True)
        assert fresh == kept
        assert fresh["usage"]["prompt_tokens"] == len(prompt_ids("Hello"))
        openai = await ask(gateway.url, COMPLETIONS, TEXT)
        assert state(openai) == "hit"
        assert msgspec.json.decode(openai.body)["choices"][0]["text"] == fresh["text"]
        stream = await record(gateway.url, PREDICT, {**TEXT, "stream": True})
        assert stream.done
        assert [event.get("cached") for event in stream.json()][-1] is True
        assert "".join(event.get("text", "") for event in stream.json()) == fresh["text"]
        assert calls(fake) == 1


@pytest.mark.fault("F4")
async def test_a_stream_that_did_not_count_is_no_answer_to_who_wants_counts() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        await record(gateway.url, COMPLETIONS, {**TEXT, "stream": True})
        answer = await ask(gateway.url, COMPLETIONS, TEXT)
        assert state(answer) == "miss"
        assert msgspec.json.decode(answer.body)["usage"]["completion_tokens"] == 4


KEYS = {
    "keys": [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("alice", "bob")]
}


@pytest.mark.fault("F7")
async def test_two_keys_never_see_each_others_answers() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake, auth=KEYS) as gateway:
        for name, expected in (("alice", "miss"), ("bob", "miss"), ("alice", "hit"), ("bob", "hit")):
            headers = [("authorization", f"Bearer {name}")]
            assert state(await ask(gateway.url, COMPLETIONS, TEXT, headers=headers)) == expected
        assert calls(fake) == 2


@pytest.mark.fault("F8")
async def test_after_a_swap_nobody_gets_an_answer_of_the_old_weights() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        for expected in ("miss", "hit"):
            answer = await ask(gateway.url, COMPLETIONS, TEXT)
            assert (state(answer), answer.header("x-model-version")) == (expected, "v1")
        await _swap(gateway, fake, "v2")
        for expected in ("miss", "hit"):
            answer = await ask(gateway.url, COMPLETIONS, TEXT)
            assert (state(answer), answer.header("x-model-version")) == (expected, "v2")
            assert b" v2" in answer.body
        await _swap(gateway, fake, "v1")
        answer = await ask(gateway.url, COMPLETIONS, TEXT)
        assert (state(answer), answer.header("x-model-version")) == ("hit", "v1")


async def _swap(gateway: Running, fake: Fake, version: str) -> None:
    fake.behave(Behaviour(version=version))
    await ask(gateway.url, COMPLETIONS, {"prompt": "warm", "max_tokens": 1})
    await eventually(lambda: gateway.fleet.versions == [version])


@pytest.mark.fault("F8")
async def test_an_answer_that_began_before_a_swap_is_kept_under_the_old_version() -> None:
    slow = Rule(contains="slow", delay_first_chunk_s=0.3)
    async with fakes(1, Behaviour(version="v1", rules=(slow,))) as (fake,), gateway_to(fake) as gateway:
        asked = {**TEXT, "prompt": "slow", "stream": True, "stream_options": USAGE}
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(record(gateway.url, COMPLETIONS, asked))
            await eventually(lambda: fake.stats.in_flight == 1)
            fake.behave(Behaviour(version="v2"))
            await ask(gateway.url, COMPLETIONS, {"prompt": "warm", "max_tokens": 1})
            await eventually(lambda: gateway.fleet.versions == ["v2"])
        before = answer.result().head
        assert before is not None
        assert before.header("x-model-version") == "v1"
        after = await record(gateway.url, COMPLETIONS, asked)
        assert after.head is not None
        assert (after.head.header("x-cache"), after.head.header("x-model-version")) == ("miss", "v2")
        assert " v2" in after.text()


@pytest.mark.fault("F8")
async def test_while_two_versions_serve_an_answer_is_of_the_version_that_it_names() -> None:
    async with fakes(2, V1) as (old, new), gateway_to(old, new) as gateway:
        await ask(gateway.url, COMPLETIONS, TEXT)
        new.behave(Behaviour(version="v2"))
        while len(gateway.fleet.versions) == 1:
            await ask(gateway.url, COMPLETIONS, {"prompt": "warm", "max_tokens": 1})
        for _ in range(6):
            answer = await ask(gateway.url, COMPLETIONS, TEXT)
            assert f" {answer.header('x-model-version')}".encode() in answer.body


async def test_a_hit_is_a_request_of_its_own() -> None:
    async with fakes(1, V1) as (fake,), gateway_to(fake) as gateway:
        names = [("x-request-id", "one")], [("x-request-id", "two")]
        answers = [await ask(gateway.url, COMPLETIONS, TEXT, headers=name) for name in names]
        assert [answer.header("x-request-id") for answer in answers] == ["one", "two"]
        assert gateway.outcomes == {Outcome.OK: 2}
        assert [record.cache for record in gateway.records] == ["miss", "hit"]
        assert await gateway.metric("changeover_requests_total", outcome="ok") == 2
        assert await gateway.metric("changeover_cache_events_total", event="hit") == 1
        assert await gateway.metric("changeover_cache_events_total", event="store") == 1
        assert await gateway.metric("changeover_cache_entries") == 1
        # Tokens that no engine computed are not counted as computed.
        assert await gateway.metric("changeover_tokens_total", kind="completion") == 4
