"""After one odd request nobody gets in any more, until somebody restarts the gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point
from tests.drivers.leaving import AfterEvents, How, WhileWaiting, leave
from tests.drivers.raw import ask, request
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, Running, fakes, gateway_to

KEY = "sk-test"
AUTHORIZED = [("authorization", f"Bearer {KEY}")]
LIMITS: dict[str, dict[str, Any]] = {
    "member": {"limits": {"max_in_flight_per_member": 1}},
    "model": {"limits": {"max_in_flight": 1}},
    "key": {
        "auth": {"keys": [{"name": "one", "sha256": sha256(KEY.encode()).hexdigest(), "max_in_flight": 1}]}
    },
}
"""Everything that may be limited to one request at a time."""


async def answered(gateway: Running, fake: Fake, form: str) -> None:
    fake.behave(Behaviour())
    path, body = FORMS[form]
    if body.get("stream"):
        assert (await record(gateway.url, path, body, headers=AUTHORIZED)).done
    else:
        assert (await ask(gateway.url, path, body, headers=AUTHORIZED)).status == 200


def failing(behaviour: Behaviour) -> Callable[[Running, Fake, str], Awaitable[None]]:
    async def fail(gateway: Running, fake: Fake, form: str) -> None:
        fake.behave(behaviour)
        await record(gateway.url, *FORMS[form], headers=AUTHORIZED)

    return fail


def cancelled(how: How) -> Callable[[Running, Fake, str], Awaitable[None]]:
    async def cancel(gateway: Running, fake: Fake, form: str) -> None:
        fake.behave(Behaviour(delay_headers_s=30))
        waiting = WhileWaiting(lambda: eventually(lambda: fake.stats.in_flight == 1))
        await leave(gateway.url, request(*FORMS[form], headers=AUTHORIZED), waiting, how)

    return cancel


async def cancelled_in_mid_answer(gateway: Running, fake: Fake, form: str) -> None:
    path, body = FORMS[form]
    if body.get("stream"):
        fake.behave(Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=2)))
        await leave(gateway.url, request(path, body, headers=AUTHORIZED), AfterEvents(1))


async def timed_out(gateway: Running, fake: Fake, form: str) -> None:
    fake.behave(Behaviour(delay_headers_s=30))
    limited = [*AUTHORIZED, ("x-request-timeout", "0.1")]
    assert (await ask(gateway.url, *FORMS[form], headers=limited)).status == 504


ENDINGS: dict[str, Callable[[Running, Fake, str], Awaitable[None]]] = {
    "answered": answered,
    "cancelled": cancelled(How.CLOSE),
    "cancelled by reset": cancelled(How.RESET),
    "cancelled in mid-answer": cancelled_in_mid_answer,
    "timed out": timed_out,
    "refused with 400": failing(Behaviour(status=400)),
    "failed with 500": failing(Behaviour(status=500)),
    "failed with 503": failing(Behaviour(status=503)),
    "reset at once": failing(Behaviour(cut=Cut(how=Ending.RESET, after=Point.NOTHING))),
    "reset after the head": failing(Behaviour(cut=Cut(how=Ending.RESET, after=Point.HEAD))),
    "reset in mid-answer": failing(Behaviour(cut=Cut(how=Ending.RESET, after=Point.BYTES, count=20))),
    "closed in mid-answer": failing(Behaviour(cut=Cut(how=Ending.CLOSE, after=Point.BYTES, count=20))),
    "ended too early": failing(Behaviour(cut=Cut(how=Ending.END, after=Point.BYTES, count=20))),
    "not whole": failing(Behaviour(length_error=5, cut=Cut(how=Ending.CLOSE, after=Point.HEAD))),
    "of the wrong type": failing(Behaviour(body="<html>", content_type="text/html")),
    "empty": failing(Behaviour(empty_choices=True)),
}


@pytest.mark.fault("A7")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("form", FORMS)
async def test_whatever_became_of_the_one_before_the_next_gets_in(form: str, limit: str) -> None:
    async with (
        fakes(1) as (fake,),
        gateway_to(
            fake,
            health={"traffic_failures": 1000, "interval_s": 10},
            retries={"attempts": 0},
            **LIMITS[limit],
        ) as gateway,
    ):
        for name, end in ENDINGS.items():
            await end(gateway, fake, form)
            await eventually(lambda: not gateway.service.live, what=f"nothing is left of one {name}")
            await answered(gateway, fake, form)
        assert gateway.leftovers() == []
