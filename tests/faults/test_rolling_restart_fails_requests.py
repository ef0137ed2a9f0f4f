"""An operator restarts the engines one after the other, and each time some users get an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from backends.contract import GUARD_PATH
from backends.fake import Behaviour, Fake
from gateway.fleet.states import State
from gateway.observe.outcome import Outcome
from tests.drivers.raw import ask, connected, request
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, POLICIES, Running, asked_of, fakes, gateway_to

SLOTS = 4
LOAD = 0.7
HEALTH = {"interval_s": 0.05, "healthy_after": 2, "breaker_open_s": 0.1}
LIMITS = {"max_in_flight_per_member": SLOTS}
SPEED = Behaviour(slots=SLOTS, tokens_per_s=300)


async def announced(fake: Fake, gateway: Running) -> None:
    """As our agent does it: the guard says that it leaves, what runs ends, then the process is another."""
    await ask(fake.url, GUARD_PATH, {"draining": True})
    await eventually(lambda: gateway.state(fake) is State.DRAINING and gateway.member(fake).in_flight == 0)
    await fake.retire()
    fake.engine.draining = False
    await fake.start_again()


async def unannounced(fake: Fake, gateway: Running) -> None:
    """As plain vLLM does it on SIGTERM: nothing new is accepted, what runs ends."""
    await fake.retire()
    await fake.start_again()


@asynccontextmanager
async def users(gateway: Running, count: int) -> AsyncIterator[list[str]]:
    """So many at a time, each form in turn; what went wrong for them."""
    wrong: list[str] = []
    ended = asyncio.Event()

    async def user(number: int) -> None:
        turn = number
        while not ended.is_set():
            turn += 1
            path, body = list(FORMS.values())[turn % len(FORMS)]
            session = [("x-session-id", str(turn))]
            if body.get("stream"):
                stream = await record(gateway.url, path, body, headers=session)
                if stream.status != 200 or not stream.done or stream.errors:
                    wrong.append(f"{path} {stream.status} {stream.content[-200:]!r}")
            else:
                answer = await ask(gateway.url, path, body, headers=session)
                if answer.status != 200:
                    wrong.append(f"{path} {answer.status} {answer.body!r}")

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(user(number), name=f"user {number}")
        yield wrong
        ended.set()


@pytest.mark.fault("B9")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("restart", [announced, unannounced])
async def test_nobody_notices_a_rolling_restart(
    restart: Callable[[Fake, Running], Awaitable[None]], policy: str
) -> None:
    async with (
        fakes(3, SPEED) as engines,
        gateway_to(*engines, health=HEALTH, limits=LIMITS, routing={"policy": policy}) as gateway,
        users(gateway, int(3 * SLOTS * LOAD)) as wrong,
    ):
        for engine in engines:
            served = asked_of(engine)
            await restart(engine, gateway)
            await eventually(lambda engine=engine: gateway.state(engine) is State.READY)  # type: ignore[misc]
            await eventually(lambda engine=engine, served=served: asked_of(engine) > served)  # type: ignore[misc]
    assert wrong == []
    assert set(gateway.outcomes) == {Outcome.OK}


@pytest.mark.fault("B9")
@pytest.mark.parametrize("restart", [announced, unannounced])
async def test_the_only_engine_is_restarted_and_requests_wait(
    restart: Callable[[Fake, Running], Awaitable[None]],
) -> None:
    async with (
        fakes(1, SPEED) as (engine,),
        gateway_to(engine, health={**HEALTH, "breaker_open_s": 0.4}, limits=LIMITS) as gateway,
        users(gateway, 3) as wrong,
    ):
        await restart(engine, gateway)
        served = gateway.outcomes[Outcome.OK]
        await eventually(lambda: gateway.outcomes[Outcome.OK] > served + 10)
    assert wrong == []


@pytest.mark.fault("B9")
async def test_an_engine_that_leaves_gets_nothing_new() -> None:
    stuck = Behaviour(tokens=1000, tokens_per_s=50)
    health = {"breaker_open_s": 30, "breaker_max_s": 30}
    async with fakes(2, stuck) as (leaving, other), gateway_to(leaving, other, health=health) as gateway:

        async def told() -> bool:
            """It says so to whoever asks it; that one goes elsewhere."""
            assert (await ask(gateway.url, *FORMS["chat"])).status == 200
            return gateway.state(leaving) is State.DRAINING

        async with connected(gateway.url) as first, connected(gateway.url) as second:
            for peer in (first, second):
                await peer.send(request(*FORMS["chat-stream"]))
            await eventually(lambda: leaving.stats.in_flight == other.stats.in_flight == 1)
            await ask(leaving.url, GUARD_PATH, {"draining": True})
            other.behave(Behaviour())
            await eventually(told)
            before = asked_of(leaving)
            for form in FORMS.values():
                assert (await ask(gateway.url, *form)).status == 200
            assert asked_of(leaving) == before
            assert leaving.stats.in_flight == 1
            assert await gateway.metric("changeover_retries_total", reason="draining") == 1
            assert gateway.member(leaving).failures == 0
