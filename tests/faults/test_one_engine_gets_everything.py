"""Load goes to the engine that is busy already, because what runs on it is not counted."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point
from tests.drivers.raw import connected, request
from tests.drivers.waiting import always, eventually
from tests.gateways import STREAMS, Running, fakes, gateway_to, settings_for

BALANCING = ("least_load", "power_of_two", "prefix", "session")
ENDLESS = Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=2))


async def open_streams(stack: AsyncExitStack, gateway: Running, name: str, count: int) -> None:
    """Streams that have begun; they run until the stack is left."""
    for number in range(count):
        path, body = STREAMS[name]
        peer = await stack.enter_async_context(connected(gateway.url))
        await peer.send(request(path, body, headers=[("x-session-id", f"session {number}")]))
        while b"data: " not in peer.received:
            await peer.receive()
            assert peer.received.startswith(b"HTTP/1.1 200 ")


def loads(gateway: Running, *engines: Fake) -> list[int]:
    return [gateway.member(engine).in_flight for engine in engines]


@pytest.mark.fault("A6")
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("policy", BALANCING)
async def test_a_stream_counts_until_its_last_byte(policy: str, name: str) -> None:
    """Prefix and session give way to load, within their bound."""
    routing = {"policy": policy}
    async with (
        fakes(2, ENDLESS) as (a, b),
        gateway_to(a, routing=routing) as gateway,
        AsyncExitStack() as streams,
    ):
        await open_streams(streams, gateway, name, 10)
        assert loads(gateway, a) == [10]
        await gateway.reconfigure(settings_for(a.url, b.url, routing=routing))
        await eventually(lambda: len(gateway.ready) == 2)
        await open_streams(streams, gateway, name, 10)
        on_a, on_b = loads(gateway, a, b)
        assert on_a + on_b == 20
        assert on_b == 10 if policy == "least_load" else on_b >= 7
        assert (a.stats.in_flight, b.stats.in_flight) == (on_a, on_b)


@pytest.mark.fault("A8")
@pytest.mark.parametrize("name", STREAMS)
async def test_probes_do_not_touch_the_counts(name: str) -> None:
    async with (
        fakes(2, ENDLESS) as (a, b),
        gateway_to(a, b, health={"interval_s": 0.02}) as gateway,
        AsyncExitStack() as streams,
    ):
        await open_streams(streams, gateway, name, 50)
        counts = loads(gateway, a, b)
        assert sum(counts) == 50
        probed = a.stats.requests["/health"]
        await always(lambda: loads(gateway, a, b) == counts, during=0.3)
        assert a.stats.requests["/health"] > probed + 3
        assert await gateway.metric("changeover_member_in_flight") == 50
