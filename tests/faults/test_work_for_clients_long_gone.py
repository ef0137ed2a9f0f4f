"""Impatient users press reload, and the engine is soon busy with nothing but what nobody waits for."""

from __future__ import annotations

import asyncio

import pytest

from backends.fake import Behaviour
from gateway.observe.outcome import Outcome
from tests.drivers.raw import connected, request
from tests.drivers.waiting import always, paced
from tests.gateways import FORMS, fakes, gateway_to

CLIENTS = 20
SLOTS = 4
PATIENCE_S = 0.2


@pytest.mark.fault("A3")
@pytest.mark.parametrize("name", ["predict", "chat-stream"])
async def test_work_never_exceeds_the_clients_that_wait(name: str) -> None:
    """The engine has fewer slots than the gateway believes, so requests also wait in the engine."""
    alive = 0
    async with (
        fakes(1, Behaviour(slots=SLOTS, delay_first_chunk_s=5 * PATIENCE_S)) as (fake,),
        gateway_to(fake) as gateway,
    ):

        async def impatient() -> None:
            nonlocal alive
            for _ in range(4):
                async with connected(gateway.url) as peer:
                    alive += 1
                    await peer.send(request(*FORMS[name]))
                    await paced(PATIENCE_S)
                # What the engine still does for it now is work for nobody.
                await paced(0.05)
                alive -= 1

        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(impatient(), name=f"impatient {number}")
                await paced(0.01)
            await always(lambda: fake.stats.in_flight <= alive, during=4 * PATIENCE_S)
        await gateway.comes_to_rest()
        assert fake.stats.in_flight == 0
        assert gateway.outcomes == {Outcome.CLIENT_GONE: 4 * CLIENTS}
        assert gateway.members[0].failures == 0
