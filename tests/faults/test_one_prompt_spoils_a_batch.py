"""Prompts of several users travel together, and one of them hurts, delays or answers another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule, Say
from backends.fake.words import prompt_ids
from gateway.observe.outcome import Outcome
from tests.drivers.many import many
from tests.drivers.raw import Peer, Response, ask, connected, request
from tests.drivers.waiting import eventually
from tests.gateways import Running, fakes, gateway_to

COMPLETIONS, PREDICT = "/v1/completions", "/predict"
NO_CACHE = {"type": "off"}
WINDOW = {"window_ms": 50}
"""Long enough that clients of one test come into one batch on a busy machine."""

SHORT, LONG = 4, 32
"""Asked for as a whole, and as a stream."""

LENGTHS = pytest.mark.parametrize("tokens", [SHORT, LONG], ids=["whole", "stream"])


def asked(prompt: Any, tokens: int = SHORT, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 1, **more}


def sent(fake: Fake) -> list[dict[str, Any]]:
    """What the engine was asked, oldest first."""
    return [msgspec.json.decode(body) for body in fake.stats.bodies(COMPLETIONS)]


def batches(fake: Fake) -> list[dict[str, Any]]:
    return [body for body in sent(fake) if isinstance(body["prompt"], list) and len(body["prompt"]) > 1]


@asynccontextmanager
async def behind(
    gateway: Running, fake: Fake, bodies: list[dict[str, Any]], headers: list[tuple[str, str]] | None = None
) -> AsyncIterator[list[Peer]]:
    """Clients whose prompts are collected while the engine is busy with one other, slow prompt of theirs."""
    first = {**bodies[0], "prompt": "busy"}
    async with AsyncExitStack() as stack:
        busy = await stack.enter_async_context(connected(gateway.url))
        await busy.send(request(PREDICT, first, headers=headers or []))
        await eventually(lambda: fake.stats.in_flight == 1)
        peers = [await stack.enter_async_context(connected(gateway.url)) for _ in bodies]
        for peer, body in zip(peers, bodies, strict=True):
            await peer.send(request(PREDICT, body, headers=headers or []))
        yield peers
        await busy.response()


async def answers(peers: list[Peer]) -> list[Response]:
    return list(await asyncio.gather(*(peer.response() for peer in peers)))


def text(answer: Response) -> str:
    said: str = msgspec.json.decode(answer.body)["text"]
    return said


BUSY = Rule(contains='"busy"', delay_headers_s=0.3)
NORMAL = Behaviour(rules=(BUSY,), version="v1")


@LENGTHS
async def test_prompts_that_come_together_travel_together(tokens: int) -> None:
    prompts = [f"prompt {i}" for i in range(12)]
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        async with behind(gateway, fake, [asked(prompt, tokens) for prompt in prompts]) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200] * 12
        assert [body["prompt"] for body in sent(fake)][1:] == [prompts]
        assert gateway.outcomes == {Outcome.OK: 13}
        assert len({answer.header("x-request-id") for answer in got}) == 12
        assert len({msgspec.json.decode(answer.body)["id"] for answer in got}) == 12
        assert await gateway.metric("changeover_batch_size_sum") == 13


@LENGTHS
async def test_each_gets_the_answer_that_it_would_have_got_alone(tokens: int) -> None:
    prompts: list[Any] = [f"prompt number {i}" * (i + 1) for i in range(8)]
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        async with behind(gateway, fake, [asked(prompt, tokens, seed=7) for prompt in prompts]) as peers:
            together = [msgspec.json.decode(answer.body) for answer in await answers(peers)]
        assert len(batches(fake)) == 1
        async with gateway_to(fake, batching="off", cache=NO_CACHE) as plain:  # type: ignore[arg-type]
            for prompt, answer in zip(prompts, together, strict=True):
                alone = msgspec.json.decode(
                    (await ask(plain.url, PREDICT, asked(prompt, tokens, seed=7))).body
                )
                assert answer["usage"] == alone["usage"]
                assert answer["usage"]["prompt_tokens"] == len(prompt_ids(prompt))
                assert {**answer, "id": "", "text": ""} == {**alone, "id": "", "text": ""}
                assert list(answer) == list(alone)


@pytest.mark.fault("C5")
@LENGTHS
async def test_no_answer_reaches_another_client(tokens: int) -> None:
    echo = Behaviour(say=Say.PROMPT, tokens_per_s=200, tokens_step=1)
    async with fakes(2, echo) as (a, b), gateway_to(a, b, cache=NO_CACHE) as gateway:

        async def client(number: int) -> tuple[int, str]:
            nonce = f"<nonce {number}>"
            if number % 7 == 0:
                async with connected(gateway.url) as peer:
                    await peer.send(request(PREDICT, asked(nonce, tokens)))
                return number, ""
            return number, text(await ask(gateway.url, PREDICT, asked(nonce, tokens)))

        for number, said in (await many(300, client)).all():
            assert said in ("", f"<nonce {number}>")
        assert max(len(body["prompt"]) for body in batches(a) + batches(b)) > 1


@pytest.mark.fault("A2")
@LENGTHS
async def test_a_client_that_leaves_while_it_waits_for_a_batch_is_never_sent(tokens: int) -> None:
    held = {"window_ms": 500}
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=held, cache=NO_CACHE) as gateway:
        bodies = [asked(f"prompt {i}", tokens) for i in range(4)]
        async with behind(gateway, fake, bodies) as peers:
            await eventually(lambda: len(gateway.service.live) >= 5)
            peers[1].close()
            await eventually(lambda: gateway.outcomes[Outcome.CLIENT_GONE] == 1, within=0.2)
            got = await answers([peers[0], *peers[2:]])
        assert [answer.status for answer in got] == [200] * 3
        assert "prompt 1" not in str(sent(fake))


@pytest.mark.fault("A2")
@LENGTHS
async def test_a_client_that_leaves_a_batch_hurts_no_other(tokens: int) -> None:
    slow = Behaviour(rules=(BUSY,), delay_first_chunk_s=0.3, version="v1")
    async with fakes(1, slow) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        bodies = [asked(f"prompt {i}", tokens) for i in range(6)]
        async with behind(gateway, fake, bodies) as peers:
            await eventually(lambda: batches(fake))
            peers[0].close()
            await eventually(lambda: gateway.outcomes[Outcome.CLIENT_GONE] == 1, within=0.2)
            got = await answers(peers[1:])
        assert [answer.status for answer in got] == [200] * 5
        assert fake.stats.gone_total == 0
        assert len(batches(fake)) == 1
        assert gateway.members[0].failures == 0


@pytest.mark.fault("A2")
@LENGTHS
async def test_when_all_of_a_batch_have_left_the_engine_is_free(tokens: int) -> None:
    slow = Behaviour(rules=(BUSY,), delay_headers_s=30)
    async with fakes(1, slow) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        async with behind(gateway, fake, [asked(f"prompt {i}", tokens) for i in range(4)]) as peers:
            await eventually(lambda: batches(fake))
            for peer in peers:
                peer.close()
            await eventually(lambda: fake.stats.gone_total == 1, within=0.2)
        await eventually(lambda: gateway.outcomes[Outcome.CLIENT_GONE] == 4)
        assert gateway.members[0].failures == 0


@pytest.mark.parametrize("status", [400, 500])
@LENGTHS
async def test_one_bad_prompt_is_refused_and_the_others_are_answered(tokens: int, status: int) -> None:
    bad = Rule(contains="bad", status=status)
    behaviour = Behaviour(rules=(BUSY, bad), version="v1")
    async with (
        fakes(1, behaviour) as (fake,),
        gateway_to(fake, batching=WINDOW, cache=NO_CACHE, health={"traffic_failures": 100}) as gateway,
    ):
        bodies = [asked(prompt, tokens) for prompt in ("one", "bad", "two", "three")]
        async with behind(gateway, fake, bodies) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200, status, 200, 200]
        assert len(batches(fake)) == 1
        assert fake.stats.requests[COMPLETIONS] == 1 + 1 + 4


async def test_an_answer_that_is_there_does_not_wait_for_the_slowest() -> None:
    """Prompt i takes i times ten tokens more than the first."""
    uneven = Behaviour(rules=(BUSY,), tokens=2, tokens_step=20, tokens_per_s=50, version="v1")
    async with fakes(1, uneven) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        async with behind(gateway, fake, [asked(f"prompt {i}", LONG) for i in range(4)]) as peers:
            order: list[int] = []

            async def read(number: int) -> None:
                await peers[number].response()
                order.append(number)
                if number == 0:
                    assert fake.stats.in_flight >= 1  # the batch is not over

            await asyncio.gather(*(read(number) for number in range(4)))
        assert order == [0, 1, 2, 3]
        assert len(batches(fake)) == 1


@LENGTHS
async def test_the_tight_limit_of_one_does_not_end_the_others(tokens: int) -> None:
    slow = Behaviour(rules=(BUSY,), delay_first_chunk_s=0.5)
    async with fakes(1, slow) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        bodies = [asked(f"prompt {i}", tokens) for i in range(3)]
        bodies[0]["timeout"] = 0.2
        async with behind(gateway, fake, bodies) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [504, 200, 200]
        assert len(batches(fake)) == 1
        assert gateway.members[0].failures == 0


@LENGTHS
async def test_a_batch_whose_engine_breaks_goes_to_another(tokens: int) -> None:
    async with fakes(2) as (bad, good), gateway_to(bad, good, batching=WINDOW, cache=NO_CACHE) as gateway:
        broken = Cut(how=Ending.RESET, after=Point.NOTHING)
        bad.behave(Behaviour(cut=broken))
        good.behave(Behaviour(rules=(BUSY,)))
        got = (await many(20, lambda i: ask(gateway.url, PREDICT, asked(f"prompt {i}", tokens)))).all()
        assert [answer.status for answer in got] == [200] * 20


DIFFERENT: dict[str, dict[str, Any]] = {
    "max_tokens": {"max_tokens": SHORT + 1},
    "temperature": {"temperature": 0.5},
    "stop": {"stop": "x"},
    "seed": {"seed": 1},
    "model": {"model": "other"},
    "a parameter": {"parameters": {"min_p": 0.1}},
}


@pytest.mark.parametrize("difference", DIFFERENT)
async def test_only_prompts_of_equal_parameters_travel_together(difference: str) -> None:
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        bodies = [asked("one"), {**asked("two"), **DIFFERENT[difference]}, asked("three")]
        async with behind(gateway, fake, bodies) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200] * 3
        assert [body["prompt"] for body in batches(fake)] == [["one", "three"]]


ALONE: dict[str, dict[str, Any]] = {
    "n": {"parameters": {"n": 2}},
    "logprobs": {"parameters": {"logprobs": 1}},
    "echo": {"parameters": {"echo": True}},
    "stream": {"stream": True},
    "huge": {"prompt": "x" * 100_000},
    "long": {"max_tokens": 33},
}


@pytest.mark.parametrize("kind", ALONE)
async def test_what_a_batch_would_not_help_travels_alone(kind: str) -> None:
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        bodies = [{**asked(f"prompt {i}"), **ALONE[kind]} for i in range(3)]
        async with behind(gateway, fake, bodies) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200] * 3
        assert not batches(fake)


async def test_lists_are_merged_and_split() -> None:
    limited = {**WINDOW, "max_batch_size": 8}
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=limited, cache=NO_CACHE) as gateway:
        lists = [[f"list {i} prompt {j}" for j in range(length)] for i, length in enumerate((3, 5, 20, 1))]
        async with behind(gateway, fake, [asked(prompts, seed=3) for prompts in lists]) as peers:
            got = [msgspec.json.decode(answer.body) for answer in await answers(peers)]
        sizes = [len(body["prompt"]) for body in sent(fake) if isinstance(body["prompt"], list)]
        assert max(sizes) <= 8
        assert sum(sizes) == 29
        for prompts, answer in zip(lists, got, strict=True):
            assert [output["index"] for output in answer["outputs"]] == list(range(len(prompts)))
            assert answer["usage"]["prompt_tokens"] == sum(len(prompt_ids(prompt)) for prompt in prompts)
            assert answer["usage"]["completion_tokens"] == SHORT * len(prompts)


async def test_token_ids_travel_together_and_never_with_texts() -> None:
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        prompts: list[Any] = [[1, 2, 3], "1,2,3", [4, 5], "text"]
        async with behind(gateway, fake, [asked(prompt) for prompt in prompts]) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200] * 4
        assert sorted(map(str, (body["prompt"] for body in batches(fake)))) == [
            "['1,2,3', 'text']",
            "[[1, 2, 3], [4, 5]]",
        ]


@pytest.mark.fault("E6")
@LENGTHS
async def test_a_batch_carries_nothing_of_the_one_client(tokens: int) -> None:
    headers = [("x-forwarded-for", "10.0.0.1"), ("cookie", "secret"), ("x-custom", "kept")]
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        async with behind(gateway, fake, [asked(f"p{i}", tokens) for i in range(3)], headers) as peers:
            await answers(peers)
        (batch,) = batches(fake)
        assert batch.keys() == {
            *("prompt", "return_token_ids", "max_tokens", "temperature"),
            *(("stream",) if tokens == LONG else ()),
        }
        seen = [each for each in fake.stats.seen if each.path == COMPLETIONS][-1]
        assert seen.header("x-custom") == "kept"
        assert seen.header("cookie") is None
        assert seen.header("x-forwarded-for") is None


async def test_an_engine_that_tells_no_token_ids_gets_no_batches_any_more() -> None:
    body = msgspec.json.encode(
        {
            "id": "x",
            "created": 1,
            "model": "m",
            "choices": [{"index": i, "text": "t", "finish_reason": "stop"} for i in range(3)],
            "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
        }
    ).decode()
    plain = Rule(contains='"return_token_ids"', body=body, content_type="application/json")
    behaviour = Behaviour(rules=(BUSY, plain))
    async with fakes(1, behaviour) as (fake,), gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway:
        for expected in (1, 1):
            async with behind(gateway, fake, [asked(f"p{i}") for i in range(3)]) as peers:
                got = await answers(peers)
            assert [answer.status for answer in got] == [200] * 3
            assert {msgspec.json.decode(each.body)["usage"]["prompt_tokens"] for each in got} == {2}
            assert len(batches(fake)) == expected


async def test_a_batch_that_hangs_holds_up_nobody_else() -> None:
    hanging = Behaviour(rules=(Rule(contains="hang", delay_headers_s=30),))
    async with (
        fakes(1, hanging) as (fake,),
        gateway_to(fake, batching=WINDOW, cache=NO_CACHE) as gateway,
        AsyncExitStack() as stack,
    ):
        for number in range(4):
            peer = await stack.enter_async_context(connected(gateway.url))
            await peer.send(request(PREDICT, asked(f"hang {number}")))
            await eventually(lambda sofar=number: fake.stats.in_flight == sofar + 1)  # type: ignore[misc]
        async with asyncio.timeout(2):
            assert (await ask(gateway.url, PREDICT, asked("quick"))).status == 200


async def test_an_idle_engine_is_not_waited_for() -> None:
    held = {"window_ms": 1000}
    async with fakes(1) as (fake,), gateway_to(fake, batching=held, cache=NO_CACHE) as gateway:
        async with asyncio.timeout(0.9):
            assert (await ask(gateway.url, PREDICT, asked("alone"))).status == 200
        assert sent(fake) == [asked("alone")]


async def test_batching_can_be_turned_off_while_it_runs() -> None:
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching="off", cache=NO_CACHE) as gateway:  # type: ignore[arg-type]
        async with behind(gateway, fake, [asked(f"p{i}") for i in range(3)]) as peers:
            await answers(peers)
        assert not batches(fake)


async def test_equal_questions_in_a_batch_are_one_prompt_and_kept_one_by_one() -> None:
    async with fakes(1, NORMAL) as (fake,), gateway_to(fake, batching=WINDOW) as gateway:
        bodies = [{**asked(f"prompt {i % 3}"), "temperature": 0} for i in range(9)]
        async with behind(gateway, fake, bodies) as peers:
            got = await answers(peers)
        assert [answer.status for answer in got] == [200] * 9
        assert [body["prompt"] for body in batches(fake)] == [["prompt 0", "prompt 1", "prompt 2"]]
        states = sorted(str(answer.header("x-cache")) for answer in got)
        assert states == ["join"] * 6 + ["miss"] * 3
        before = fake.stats.requests[COMPLETIONS]
        same = {"prompt": "prompt 1", "max_tokens": SHORT, "temperature": 0}
        openai = await ask(gateway.url, COMPLETIONS, same)
        assert openai.header("x-cache") == "hit"
        assert fake.stats.requests[COMPLETIONS] == before
        own = await ask(fake.url, COMPLETIONS, same)
        assert _outline(msgspec.json.decode(openai.body)) == _outline(msgspec.json.decode(own.body))


def _outline(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _outline(each)) for name, each in value.items()]
    return [_outline(each) for each in value] if isinstance(value, list) else None
