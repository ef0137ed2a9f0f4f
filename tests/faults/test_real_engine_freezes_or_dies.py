"""What the fake engine shows about frozen and killed engines is so with vLLM as well."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.fleet.evidence import Cause
from gateway.fleet.states import State
from tests.drivers.many import many
from tests.drivers.raw import ask
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.engines import EnginesUnderTest, EngineUnderTest
from tests.gateways import Running, gateway_to

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

HEALTH = {"interval_s": 0.3, "timeout_s": 2, "stall_s": 2}
PROMPT = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 1}
LONG = ("/v1/completions", {**PROMPT, "max_tokens": 900, "stream": True, "ignore_eos": True})
COMEBACK_S = 200


@asynccontextmanager
async def gateway_to_real(engines: EnginesUnderTest, continuation: str = "off") -> AsyncIterator[Running]:
    sockets = [f"unix:{engine.place.engine_socket}" for engine in engines.engines]
    async with gateway_to(
        *sockets,
        ready=False,
        health=HEALTH,
        routing={"policy": "round_robin"},
        retries={"continuation": continuation},
        cache={"type": "off"},
    ) as gateway:
        await eventually(lambda: len(gateway.ready) == len(sockets), within=30)
        yield gateway


def server_of(engine: EngineUnderTest) -> int:
    """The process that speaks HTTP."""
    pid = engine.status().pid
    assert pid is not None
    return pid


def core_of(server: int) -> int:
    """The process in which the model is."""
    children = [
        int(pid)
        for task in Path(f"/proc/{server}/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
    # Named so where the engine can set its title, else as it was spawned.
    names = (b"EngineCore", b"spawn_main")
    return next(
        pid for pid in children if any(name in Path(f"/proc/{pid}/cmdline").read_bytes() for name in names)
    )


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.fault("B2")
async def test_an_engine_core_that_stands_still_is_left_out(tiny_engines: EnginesUnderTest) -> None:
    async with gateway_to_real(tiny_engines) as gateway:
        core = core_of(await asyncio.to_thread(server_of, tiny_engines.engines[0]))
        frozen, other = gateway.members
        with stopped(core):
            answers = await many(6, lambda _: ask(gateway.url, "/v1/completions", PROMPT))
            assert {answer.status for answer in answers.all()} == {200}
            assert frozen.health.cause is Cause.STALL
            assert other.health.state is State.READY
            assert (await ask(gateway.url, "/predict", {"prompt": "Hi", "max_tokens": 4})).status == 200

        async def back() -> bool:
            assert (await ask(gateway.url, "/v1/completions", PROMPT)).status == 200
            return len(gateway.ready) == 2

        await eventually(back, within=60)


@pytest.mark.fault("B8")
async def test_streams_of_a_killed_engine_end_in_an_error_event(tiny_engines: EnginesUnderTest) -> None:
    async with gateway_to_real(tiny_engines) as gateway:
        server = await asyncio.to_thread(server_of, tiny_engines.engines[0])
        killed, other = gateway.members
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(record(gateway.url, *LONG), name="stream") for _ in range(6)]
            await eventually(lambda: killed.in_flight == other.in_flight == 3, within=30)
            await eventually(lambda: killed.health.silent_s(0) < 0, within=30, what="tokens flow")
            os.kill(server, signal.SIGKILL)
        recorded = [stream.result() for stream in streams]
        assert {stream.status for stream in recorded} == {200}
        broken = [stream for stream in recorded if not stream.done]
        assert 1 <= len(broken) <= 3
        assert all(stream.errors[-1]["code"] == "backend_failed" for stream in broken)
        answers = await many(10, lambda _: ask(gateway.url, "/v1/completions", PROMPT))
        assert {answer.status for answer in answers.all()} == {200}
        await asyncio.to_thread(tiny_engines.wait_ready)
        await eventually(lambda: len(gateway.ready) == 2, within=COMEBACK_S)


TOKENS = 400
GREEDY = {
    "max_tokens": TOKENS,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
}
GREEDY_FORMS = [
    *(("/v1/completions", {"prompt": f"Once upon a time {number}", **GREEDY}) for number in range(2)),
    *(
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": f"Story {number}."}], **GREEDY})
        for number in range(2)
    ),
]
NEAR = 0.15
"""How far below the likeliest token a chosen one may be: the rest of a batch moves bf16 figures so much."""


def token_ids(events: list[Any]) -> tuple[list[int], list[int]]:
    """Of the prompt, and of the answer."""
    choices = [event["choices"][0] for event in events if event["choices"]]
    first = events[0].get("prompt_token_ids") or choices[0]["prompt_token_ids"]
    return first, [token for choice in choices for token in choice.get("token_ids") or ()]


@pytest.mark.fault("S13")
async def test_streams_of_a_killed_engine_go_on_token_by_token(tiny_engines: EnginesUnderTest) -> None:
    async with gateway_to_real(tiny_engines, "on") as gateway:
        server = await asyncio.to_thread(server_of, tiny_engines.engines[0])
        killed, _ = gateway.members
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(record(gateway.url, *form), name=form[0]) for form in GREEDY_FORMS]
            await eventually(lambda: killed.in_flight == 2, within=10)
            await asyncio.sleep(0.5)  # until some tokens have come
            os.kill(server, signal.SIGKILL)
        for task in streams:
            stream = task.result()
            assert stream.errors == []
            prompt, ids = token_ids(stream.json())
            assert len(ids) == TOKENS
            usage = stream.json()[-1]["usage"]
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), TOKENS)
            await each_is_the_likeliest(gateway, prompt, ids)
        assert await gateway.metric("changeover_continuations_total", outcome="continued") == 2

        async def back() -> bool:
            await ask(gateway.url, "/v1/completions", PROMPT)
            return len(gateway.ready) == 2

        await eventually(back, within=COMEBACK_S)


async def each_is_the_likeliest(gateway: Running, prompt: list[int], ids: list[int]) -> None:
    """A token too many, too few or out of place, and greedy decoding takes none of those behind it."""
    scoring = {"prompt": [*prompt, *ids], "max_tokens": 1, "prompt_logprobs": 1}
    answer = (await ask(gateway.url, "/v1/completions", scoring)).json()
    places = answer["choices"][0]["prompt_logprobs"][len(prompt) :]
    for token, place in zip(ids, places, strict=True):
        best = max(entry["logprob"] for entry in place.values())
        assert place[str(token)]["logprob"] >= best - NEAR
