"""Twice as many users as there is room for, and in the end nobody is served: everybody waits in vain.

How admission holds under minutes of overload is `tests/gateway/flow/test_admission_overload.py`, in simulated
time; here the whole gateway refuses, on real sockets.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

import pytest

from backends.fake import Behaviour
from tests.drivers.raw import Response, ask, connected, request
from tests.drivers.waiting import eventually, paced
from tests.gateways import FORMS, Running, fakes, gateway_to

SLOTS = 4
SERVICE_S = 0.1
PERIOD_S = 1.0
LIMITS = {"max_in_flight_per_member": SLOTS, "max_queued": SLOTS}


async def served(gateway: Running, form: str, users: int) -> tuple[int, list[tuple[float, Response]]]:
    """How many answers so many users at a time got, and what was refused, with the time that took."""
    good = 0
    refused: list[tuple[float, Response]] = []
    until = time.monotonic() + PERIOD_S
    path, body = FORMS[form]

    async def user(number: int) -> None:
        nonlocal good
        turn = 0
        while time.monotonic() < until:
            turn += 1
            began = time.monotonic()
            answer = await ask(gateway.url, path, {**body, "stop": f"{number}-{turn}"})
            if answer.status == 200:
                good += 1
            else:
                refused.append((time.monotonic() - began, answer))
                await paced(0.02)

    async with asyncio.TaskGroup() as group:
        for number in range(users):
            group.create_task(user(number), name=f"user {number}")
    return good, refused


@pytest.mark.fault("G3")
@pytest.mark.parametrize("form", ["completions", "chat-stream", "predict"])
async def test_those_who_are_served_are_as_many_as_ever(form: str) -> None:
    async with (
        fakes(1, Behaviour(slots=SLOTS, delay_first_chunk_s=SERVICE_S)) as (fake,),
        gateway_to(fake, limits=LIMITS, batching={"mode": "off"}) as gateway,
    ):
        peak, none = await served(gateway, form, SLOTS)
        assert none == []
        good, refused = await served(gateway, form, 4 * SLOTS)
        assert good >= 0.8 * peak
        assert fake.stats.max_in_flight == SLOTS
        for _, answer in refused:
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "over_capacity"
            assert 1 <= int(answer.header("retry-after") or 0) <= 60
        assert refused and median(took for took, _ in refused) < SERVICE_S
        await eventually(lambda: not gateway.service.live)
        assert (await served(gateway, form, SLOTS // 2))[1] == []


@pytest.mark.fault("G3")
@pytest.mark.parametrize("form", FORMS)
async def test_a_question_that_was_refused_can_be_asked_again(form: str) -> None:
    """One that others may join: whoever asks the same afterwards must not wait for the one refused."""
    limits = {"max_in_flight_per_member": 1, "max_queued": 0, "max_queue_s": 0}
    path, body = FORMS[form]
    async with fakes(1, Behaviour(delay_headers_s=30)) as (fake,), gateway_to(fake, limits=limits) as gateway:
        async with connected(gateway.url) as running:
            await running.send(request("/v1/completions", {"prompt": "Long"}))
            await eventually(lambda: fake.stats.in_flight == 1)
            for _ in range(3):
                assert (await ask(gateway.url, path, {**body, "temperature": 0})).status == 503
        fake.behave(Behaviour())
        await eventually(lambda: not gateway.service.live)
        assert (await ask(gateway.url, path, {**body, "temperature": 0})).status == 200
