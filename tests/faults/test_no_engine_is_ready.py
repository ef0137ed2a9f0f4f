"""All engines are away for a minute, and users get errors at once, or for ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from backends.fake import Behaviour, Fake
from gateway.observe.outcome import Outcome
from tests.drivers.many import many
from tests.drivers.process import free_port
from tests.drivers.raw import Response, ask
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, POLICIES, fakes, gateway_to

HEALTH = {"interval_s": 0.1, "healthy_after": 2}


def alone(form: str, number: int) -> tuple[str, dict[str, Any]]:
    """A request that shares no engine call with another."""
    path, body = FORMS[form]
    return path, {**body, "top_p": 0.5 + number / 100}


def assert_sent_away(answer: Response, code: str = "no_backend") -> None:
    assert answer.status == 503
    assert answer.json()["error"]["code"] == code
    assert 1 <= int(answer.header("retry-after") or 0) <= 60


@pytest.mark.fault("B11")
@pytest.mark.parametrize("form", FORMS)
async def test_requests_wait_for_the_first_engine(form: str) -> None:
    port = free_port()
    async with gateway_to(f"http://127.0.0.1:{port}", ready=False) as gateway:
        assert (await ask(gateway.url, "/readyz")).status == 503
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(ask(gateway.url, *alone(form, number)), name=f"early {number}")
                for number in range(5)
            ]
            await eventually(lambda: gateway.service.admission.queued == 5)
            async with Fake.start(port=port):
                assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
                assert (await ask(gateway.url, "/readyz")).status == 200


@pytest.mark.fault("B11")
@pytest.mark.parametrize("form", FORMS)
async def test_waiting_ends_with_503_and_a_time_to_come_back(form: str) -> None:
    limits = {"max_queue_s": 0.2, "max_queued": 3}
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with gateway_to(nowhere, ready=False, limits=limits) as gateway:
        began = time.monotonic()
        answers = (await many(8, lambda number: ask(gateway.url, *alone(form, number)))).all()
        assert time.monotonic() - began >= 0.2
        for answer in answers:
            assert_sent_away(answer, answer.json()["error"]["code"])
        assert gateway.outcomes == {Outcome.NO_BACKEND: 3, Outcome.OVER_CAPACITY: 5}
        assert await gateway.metric("changeover_refused_total", reason="no_member") == 3
        assert await gateway.metric("changeover_refused_total", reason="queue_full") == 5


@pytest.mark.fault("B7")
@pytest.mark.parametrize("policy", POLICIES)
async def test_all_engines_die_under_load_and_come_back(policy: str) -> None:
    limits = {"max_queue_s": 0.3}
    async with (
        fakes(2, Behaviour(tokens_per_s=200)) as engines,
        gateway_to(*engines, health=HEALTH, limits=limits, routing={"policy": policy}) as gateway,
    ):
        ended = asyncio.Event()
        dead = asyncio.Event()
        meanwhile: list[Response] = []

        async def client(number: int) -> None:
            while not ended.is_set():
                path, body = list(FORMS.values())[number % len(FORMS)]
                during = dead.is_set()
                try:
                    answer = await ask(gateway.url, path, body, headers=[("x-session-id", str(number))])
                except AssertionError:
                    continue  # a whole answer that was cut off in its middle
                if during and dead.is_set():
                    meanwhile.append(answer)

        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(client(number), name=f"client {number}")
            await eventually(lambda: gateway.outcomes[Outcome.OK] > 50)
            for engine in engines:
                await engine.kill()
            await eventually(lambda: not gateway.fleet.ready)
            dead.set()
            await eventually(lambda: len(meanwhile) > 12)
            dead.clear()
            for engine in engines:
                await engine.start_again()
            back = time.monotonic()
            served = gateway.outcomes[Outcome.OK]
            await eventually(lambda: gateway.outcomes[Outcome.OK] > served)
            # Two probes, each up to 1.1 intervals after the one before, with room for a busy machine.
            assert time.monotonic() - back < 1
            await eventually(lambda: len(gateway.ready) == 2)
            ended.set()
        for answer in meanwhile:
            assert_sent_away(answer, answer.json()["error"]["code"])
