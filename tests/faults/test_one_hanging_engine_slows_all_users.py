"""One engine of three accepts requests and answers none, and every third user waits for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from backends.fake import Behaviour
from gateway.fleet.states import State
from gateway.observe.outcome import Outcome
from tests.drivers.blackhole import blackhole
from tests.drivers.many import many
from tests.drivers.raw import ask, connected, request
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, POLICIES, STREAMS, asked_of, fakes, gateway_to

QUICK_PROBES = {"interval_s": 0.05, "timeout_s": 0.1, "unhealthy_after": 2}
FAST_S = 1.0
"""Far above what a healthy engine takes, far below any time limit."""


@pytest.mark.fault("B1")
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_deaf_engine_is_left_out_and_its_requests_go_elsewhere(policy: str) -> None:
    async with (
        fakes(3) as (deaf, a, b),
        gateway_to(deaf, a, b, routing={"policy": policy}, health=QUICK_PROBES) as gateway,
    ):
        deaf.behave(Behaviour(deaf=True))

        async def client(number: int) -> float:
            began = time.monotonic()
            session = [("x-session-id", str(number))]
            path, body = list(FORMS.values())[number % len(FORMS)]
            answer = await ask(gateway.url, path, body, headers=session)
            assert answer.status == 200
            return time.monotonic() - began

        outcomes = await many(60, client, at_a_time=12)
        assert len(outcomes.all()) == 60
        await eventually(lambda: gateway.state(deaf) is State.EJECTED)
        assert gateway.member(deaf).in_flight == 0
        before = gateway.member(deaf).requests
        outcomes = await many(60, client, at_a_time=12)
        assert max(outcomes.all()) < FAST_S
        assert gateway.member(deaf).requests == before
        assert gateway.outcomes == {Outcome.OK: 120}


@pytest.mark.fault("B1")
@pytest.mark.parametrize("form", FORMS)
async def test_what_hangs_on_the_only_engine_ends_with_504(form: str) -> None:
    timeouts = {"first_byte_s": 0.3, "total_s": 0.3, "connect_s": 0.2, "heartbeat_s": 0.3, "silence_s": 0.3}
    async with fakes(1) as (deaf,), gateway_to(deaf, timeouts=timeouts) as gateway:
        deaf.behave(Behaviour(deaf=True))
        answer = await ask(gateway.url, *FORMS[form])
        assert answer.status == 504
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        assert gateway.outcomes == {Outcome.TIMEOUT: 1}


@pytest.mark.fault("B1")
async def test_what_hangs_takes_no_place_from_what_works() -> None:
    """Nothing is retried, so ten requests go on hanging on the ejected engine."""
    limits = {"max_in_flight_per_member": 10}
    async with (
        fakes(2) as (deaf, good),
        gateway_to(
            deaf,
            good,
            limits=limits,
            health=QUICK_PROBES,
            retries={"attempts": 0},
            routing={"policy": "round_robin"},
        ) as gateway,
    ):
        good.behave(Behaviour(delay_headers_s=30))
        deaf.behave(Behaviour(deaf=True))

        async def hang(number: int) -> None:
            async with connected(gateway.url) as peer:
                await peer.send(request(*FORMS["completions"]))
                await peer.receive()

        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(hang(number), name=f"hangs {number}") for number in range(20)]
            await eventually(lambda: gateway.member(deaf).in_flight == gateway.member(good).in_flight == 10)
            await eventually(lambda: gateway.state(deaf) is State.EJECTED)
            for client in clients[10:]:
                client.cancel()
            await eventually(lambda: len(gateway.service.live) == 10)
            room = 10 - gateway.member(good).in_flight
            good.behave(Behaviour())
            answers = await many(room, lambda _: ask(gateway.url, *FORMS["completions"]), at_a_time=room)
            assert [answer.status for answer in answers.all()] == [200] * room
            for client in clients:
                client.cancel()


@pytest.mark.fault("B1")
@pytest.mark.parametrize("form", STREAMS)
async def test_an_engine_that_takes_no_connection_is_passed_over(form: str) -> None:
    timeouts = {"connect_s": 0.2}
    with blackhole() as nowhere:
        async with (
            fakes(1) as (good,),
            gateway_to(good, nowhere, ready=False, timeouts=timeouts, health=QUICK_PROBES) as gateway,
        ):
            await eventually(lambda: gateway.fleet.ready)
            outcomes = await many(20, lambda _: ask(gateway.url, *FORMS[form]), at_a_time=5)
            assert {answer.status for answer in outcomes.all()} == {200}
            assert asked_of(good) == 20
