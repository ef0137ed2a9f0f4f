"""Clients read more slowly than engines write, and the gateway holds all of it."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from backends.fake import Behaviour, Rule
from tests.drivers.process import running_gateway
from tests.drivers.raw import request
from tests.drivers.slow import not_reading, read_slowly
from tests.drivers.waiting import eventually, paced
from tests.gateways import fakes, gateway_to, settings_for

MIB = 1024 * 1024


@pytest.mark.fault("D6")
async def test_a_reader_of_a_kilobyte_a_second_does_not_make_the_gateway_hold_the_rest() -> None:
    """One stream of 500 MB, one plain body of 500 MB."""
    plain = Rule(contains="plain", body_bytes=500_000_000, content_type="application/json")
    endless = Behaviour(tokens=1_000, event_bytes=500_000, rules=(plain,))
    async with fakes(1, endless) as (fake,), running_gateway(settings_for(fake.url)) as gateway:
        before = gateway.resident_bytes
        for path, body in (
            ("/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 1_000}),
            ("/predict", {"prompt": "x", "stream": True, "max_tokens": 1_000}),
            ("/v1/completions", {"prompt": "plain"}),
        ):
            async with not_reading(gateway.url, request(path, body)) as peer:
                assert await read_slowly(peer, 10_240, 5_120) == 5_120
                grown = gateway.resident_bytes - before
                assert grown < 40 * MIB, f"{path}: {grown / MIB:.0f} MiB"


@pytest.mark.fault("D6")
async def test_two_hundred_streams_that_nobody_reads_stay_small() -> None:
    each = Behaviour(tokens=100, event_bytes=10_000)
    async with fakes(1, each) as (fake,), running_gateway(settings_for(fake.url)) as gateway:
        before = gateway.resident_bytes
        async with AsyncExitStack() as stack:
            for number in range(200):
                body = {"prompt": f"{number}", "stream": True, "max_tokens": 100}
                path = ("/v1/completions", "/predict")[number % 2]
                await stack.enter_async_context(not_reading(gateway.url, request(path, body)))

            async def settled() -> bool:
                first = gateway.resident_bytes
                await paced(0.2)
                return gateway.resident_bytes - first < MIB

            await eventually(settled)
            grown = gateway.resident_bytes - before
            assert grown < 200 * 0.4 * MIB, f"{grown / MIB:.0f} MiB"


@pytest.mark.fault("D6")
async def test_a_reader_that_pauses_gets_everything_in_the_end() -> None:
    whole = Behaviour(tokens=200, event_bytes=50_000)
    async with fakes(1, whole) as (fake,), gateway_to(fake) as gateway:
        for path in ("/v1/completions", "/predict"):
            body = {"prompt": "x", "stream": True, "max_tokens": 200}
            async with not_reading(gateway.url, request(path, body)) as peer:
                await eventually(lambda: gateway.members[0].in_flight == 1)
                response = await peer.response()
                assert response.body.endswith(b"data: [DONE]\n\n")
                assert len(response.body) > 9_000_000


@pytest.mark.fault("D6")
async def test_a_reader_that_stopped_for_good_is_given_up() -> None:
    endless = Behaviour(tokens=5_000, event_bytes=100_000)
    limits = {"silence_s": 0.3, "heartbeat_s": 0.3, "first_byte_s": 5}
    async with fakes(1, endless) as (fake,), gateway_to(fake, timeouts=limits) as gateway:
        for path in ("/v1/completions", "/predict"):
            body = {"prompt": "x", "stream": True, "max_tokens": 5_000}
            async with not_reading(gateway.url, request(path, body)):
                await eventually(lambda: fake.stats.in_flight == 1)
                await eventually(lambda: fake.stats.in_flight == 0, within=10)
        assert gateway.members[0].failures == 0
