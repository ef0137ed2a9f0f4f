"""An engine has recovered, and stays idle until somebody restarts the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Point
from gateway.fleet.states import State
from tests.drivers.raw import ask
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, POLICIES, asked_of, fakes, gateway_to

HEALTH = {"traffic_failures": 3, "interval_s": 0.1}
BROKEN = {
    "503": Behaviour(status=503),
    "502": Behaviour(status=502),
    "500": Behaviour(status=500),
    "reset": Behaviour(cut=Cut(how=Ending.RESET, after=Point.NOTHING)),
    "cut": Behaviour(cut=Cut(how=Ending.CLOSE, after=Point.BYTES, count=10)),
}


@pytest.mark.fault("B6")
@pytest.mark.parametrize(
    ("kind", "policy"),
    [*((kind, "least_load") for kind in BROKEN), *(("503", policy) for policy in POLICIES)],
)
async def test_traffic_returns_by_itself(kind: str, policy: str) -> None:
    routing: dict[str, Any] = {"policy": policy}
    async with fakes(2) as (sick, good), gateway_to(sick, good, routing=routing, health=HEALTH) as gateway:
        number = 0

        async def users() -> None:
            nonlocal number
            for path, body in FORMS.values():
                number += 1
                prompt = {"messages": [{"role": "user", "content": str(number)}]}
                asked = {**body, **({"prompt": str(number)} if "prompt" in body else prompt)}
                await record(gateway.url, path, asked, headers=[("x-session-id", str(number))])

        async def opened() -> bool:
            await users()
            return gateway.state(sick) is not State.READY

        sick.behave(BROKEN[kind])
        await eventually(opened)
        sick.behave(Behaviour())

        async def back() -> bool:
            await users()
            return gateway.state(sick) is State.READY

        await eventually(back)
        served = asked_of(sick)

        async def served_again() -> bool:
            await users()
            return asked_of(sick) > served

        await eventually(served_again)
        assert (await ask(gateway.url, *FORMS["chat"])).status == 200
