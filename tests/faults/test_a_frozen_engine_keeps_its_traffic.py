"""An engine stands still while its health page says 200, and for an hour its users get nothing."""

from __future__ import annotations

import asyncio

import pytest

from backends.fake import Behaviour, Cut, Ending, Point, Rule
from gateway.fleet.evidence import Cause
from gateway.fleet.states import State
from tests.drivers.many import many
from tests.drivers.raw import ask, connected, request
from tests.drivers.waiting import always, eventually
from tests.gateways import FORMS, STREAMS, fakes, gateway_to

HEALTH = {"interval_s": 0.05, "stall_s": 0.3}
FROZEN = Behaviour(delay_headers_s=30, frozen_counters=True)
FROZEN_IN_MID_STREAM = Behaviour(
    frozen_counters=True, cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=2)
)


@pytest.mark.fault("B2")
@pytest.mark.parametrize("form", FORMS)
async def test_an_engine_whose_counters_stand_still_is_left_out(form: str) -> None:
    async with fakes(2) as (frozen, good), gateway_to(frozen, good, health=HEALTH) as gateway:
        frozen.behave(FROZEN)
        answers = await many(8, lambda _: ask(gateway.url, *FORMS[form]))
        assert {answer.status for answer in answers.all()} == {200}
        assert gateway.member(frozen).health.cause is Cause.STALL
        assert gateway.state(good) is State.READY
        assert frozen.stats.requests["/health"] > 0
        assert await gateway.metric("changeover_retries_total", reason="timeout") >= 1


@pytest.mark.fault("B2")
async def test_an_engine_that_froze_in_mid_stream_is_left_out() -> None:
    async with fakes(2) as (frozen, good), gateway_to(frozen, good, health=HEALTH) as gateway:
        frozen.behave(FROZEN_IN_MID_STREAM)
        async with connected(gateway.url) as first, connected(gateway.url) as second:
            for peer in (first, second):
                await peer.send(request(*STREAMS["chat-stream"]))
            await eventually(lambda: gateway.member(frozen).health.cause is Cause.STALL)
        answers = await many(10, lambda _: ask(gateway.url, *FORMS["chat"]))
        assert {answer.header("x-fake-name") for answer in answers.all()} == {"b"}


@pytest.mark.fault("B2")
async def test_a_frozen_engine_comes_back_when_its_counters_move() -> None:
    async with fakes(2) as (frozen, good), gateway_to(frozen, good, health=HEALTH) as gateway:
        frozen.behave(FROZEN)
        await many(4, lambda _: ask(gateway.url, *FORMS["chat"]))
        await eventually(lambda: gateway.state(frozen) is not State.READY)
        frozen.behave(Behaviour())

        async def back() -> bool:
            await ask(gateway.url, *FORMS["chat"])
            return gateway.state(frozen) is State.READY

        await eventually(back)


@pytest.mark.fault("B2")
async def test_a_long_prompt_is_no_stall() -> None:
    """Nothing is sent for longer than the limit, but the counters move."""
    slow = Behaviour(tokens=40, tokens_per_s=50)
    async with (
        fakes(1, slow) as (fake,),
        gateway_to(fake, health=HEALTH) as gateway,
        asyncio.TaskGroup() as g,
    ):
        task = g.create_task(ask(gateway.url, *FORMS["completions"]), name="slow")
        await eventually(lambda: fake.stats.in_flight == 1)
        await always(lambda: task.done() or gateway.state(fake) is State.READY, during=0.7)
        assert (await task).status == 200


@pytest.mark.fault("B12")
@pytest.mark.parametrize("policy", ["least_load", "prefix"])
async def test_without_a_load_page_the_gateway_goes_by_what_it_knows(policy: str) -> None:
    missing = Behaviour(rules=(Rule(paths=("/metrics",), status=404),), delay_headers_s=0.8)
    async with (
        fakes(2, missing) as (a, b),
        gateway_to(a, b, health=HEALTH, routing={"policy": policy}) as gateway,
    ):
        answers = await many(20, lambda _: ask(gateway.url, *FORMS["completions"]))
        assert {answer.status for answer in answers.all()} == {200}
        assert abs(gateway.member(a).requests - gateway.member(b).requests) <= 6
        assert {gateway.state(a), gateway.state(b)} == {State.READY}
        assert await gateway.metric("changeover_backend_load_endpoint_errors_total") >= 1
        assert gateway.member(a).health.counters_missing
