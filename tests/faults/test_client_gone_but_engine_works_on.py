"""A user stops an answer, and the engine computes on for nobody: the GPU is busy with the dead."""

from __future__ import annotations

import asyncio
import time

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point
from gateway.fleet.states import State
from gateway.observe.outcome import Outcome
from tests.drivers.leaving import AfterEvents, How, Left, WhileWaiting, leave
from tests.drivers.raw import ask, connected, request
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, STREAMS, Running, asked_of, fakes, gateway_to

FREE_WITHIN_S = 0.2
COMPLETIONS = "/v1/completions"
HOW = pytest.mark.parametrize("how", list(How), ids=[how.name.lower() for how in How])

SILENT = Behaviour(delay_headers_s=30)
STUCK = Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=3))


async def assert_free(fake: Fake, left: Left) -> None:
    await eventually(lambda: fake.stats.in_flight == 0)
    assert fake.stats.gone[-1].at_s - left.at_s < FREE_WITHIN_S


async def assert_nobody_is_blamed(gateway: Running, requests: int = 1) -> None:
    await eventually(lambda: gateway.outcomes == {Outcome.CLIENT_GONE: requests})
    assert not any(member.failures for member in gateway.members)
    assert await gateway.metric("changeover_requests_total", outcome="client_gone") == requests
    assert await gateway.metric("changeover_upstream_attempts_total", result="cancelled") == requests


@pytest.mark.fault("A1")
@HOW
async def test_the_engine_is_free_when_a_waiting_client_leaves(how: How) -> None:
    async with fakes(1, SILENT) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            waiting = WhileWaiting(lambda: eventually(lambda: fake.stats.in_flight == 1))
            left = await leave(gateway.url, request(path, body), waiting, how)
            await assert_free(fake, left)
            assert gateway.members[0].in_flight == 0
        await assert_nobody_is_blamed(gateway, len(FORMS))


@pytest.mark.fault("A2")
@HOW
async def test_the_engine_is_free_when_a_client_leaves_in_mid_stream(how: How) -> None:
    async with fakes(1, STUCK) as (fake,), gateway_to(fake) as gateway:
        for path, body in STREAMS.values():
            left = await leave(gateway.url, request(path, body), AfterEvents(2), how)
            await assert_free(fake, left)
        await assert_nobody_is_blamed(gateway, len(STREAMS))


@pytest.mark.fault("A2")
async def test_the_engine_is_free_when_a_client_leaves_between_head_and_first_token() -> None:
    silent, quickly = Behaviour(delay_first_chunk_s=30), {"heartbeat_s": 0.05}
    async with fakes(1, silent) as (fake,), gateway_to(fake, timeouts=quickly) as gateway:
        for path, body in STREAMS.values():
            left = await leave(gateway.url, request(path, body), AfterEvents(0))
            await assert_free(fake, left)
        await assert_nobody_is_blamed(gateway, len(STREAMS))


@pytest.mark.fault("A2")
async def test_a_client_that_leaves_the_queue_is_never_sent() -> None:
    limits = {"max_in_flight_per_member": 1}
    async with fakes(1, SILENT) as (fake,), gateway_to(fake, limits=limits) as gateway:
        admission = gateway.service.admission
        async with connected(gateway.url) as first:
            await first.send(request(*FORMS["predict"]))
            await eventually(lambda: fake.stats.in_flight == 1)
            for path, body in FORMS.values():
                queued = WhileWaiting(lambda: eventually(lambda: admission.queued == 1))
                await leave(gateway.url, request(path, body), queued)
                await eventually(lambda: admission.queued == 0)
            assert await gateway.metric("changeover_queued") == 0
            assert gateway.outcomes == {Outcome.CLIENT_GONE: len(FORMS)}
        await eventually(lambda: fake.stats.in_flight == 0)
        assert asked_of(fake) == 1


@pytest.mark.fault("A2")
async def test_a_client_that_leaves_while_nobody_is_ready_leaves_the_queue() -> None:
    async with gateway_to("http://127.0.0.1:9", ready=False) as gateway:
        queued = WhileWaiting(lambda: eventually(lambda: gateway.service.admission.queued == 1))
        await leave(gateway.url, request("/predict", {"prompt": "Hello"}), queued)
        await eventually(lambda: gateway.service.admission.queued == 0)


@pytest.mark.fault("A2")
async def test_a_client_that_leaves_while_its_answer_is_read_slowly_frees_the_engine() -> None:
    behaviour = Behaviour(body_bytes=500_000_000)
    async with fakes(1, behaviour) as (fake,), gateway_to(fake) as gateway:
        async with connected(gateway.url, receive_buffer=4096) as peer:
            await peer.send(request("/v1/completions", {"prompt": "Hello"}))
            await peer.receive(1000)
            await eventually(lambda: fake.stats.in_flight == 1)
        await eventually(lambda: fake.stats.in_flight == 0)
        await assert_nobody_is_blamed(gateway)


@pytest.mark.fault("A2")
async def test_a_client_that_leaves_while_it_is_retried_frees_the_second_engine() -> None:
    async with (
        fakes(2) as (bad, good),
        gateway_to(bad, good, health={"traffic_failures": 100}) as gateway,
    ):
        bad.behave(Behaviour(status=503))
        good.behave(SILENT)
        path, body = FORMS["chat-stream"]
        waiting = WhileWaiting(lambda: eventually(lambda: good.stats.in_flight == 1))
        await leave(gateway.url, request(path, body), waiting)
        await eventually(lambda: good.stats.in_flight == 0)
        await eventually(lambda: gateway.outcomes == {Outcome.CLIENT_GONE: 1})
        assert gateway.member(good).failures == 0


@pytest.mark.fault("A2")
async def test_a_client_that_leaves_in_its_body_costs_nothing() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        asked = request("/predict", {"prompt": "Hello"})
        for cut in (1, 30, len(asked) - 1):
            async with connected(gateway.url) as peer:
                await peer.send(asked[:cut])
        await eventually(lambda: not gateway.gateway.edge.connections)
        assert gateway.records == []
        assert not fake.stats.requests["/v1/completions"]


@pytest.mark.fault("A1")
async def test_the_next_client_is_served_by_the_place_that_became_free() -> None:
    limits = {"max_in_flight_per_member": 1}
    async with fakes(1, SILENT) as (fake,), gateway_to(fake, limits=limits) as gateway:
        for path, body in FORMS.values():
            waiting = WhileWaiting(lambda: eventually(lambda: fake.stats.in_flight == 1))
            await leave(gateway.url, request(path, body), waiting)
        await eventually(lambda: fake.stats.in_flight == 0)
        fake.behave(Behaviour())
        assert (await ask(gateway.url, *FORMS["predict"])).status == 200
        assert gateway.state(fake) is State.READY


@pytest.mark.fault("A2")
async def test_a_client_with_a_second_request_behind_the_first_frees_both() -> None:
    async with fakes(1, SILENT) as (fake,), gateway_to(fake) as gateway:
        path, body = FORMS["completions"]
        async with connected(gateway.url) as peer:
            await peer.send(request(path, body) + request(path, body))
            await eventually(lambda: fake.stats.in_flight == 1)
        await eventually(lambda: fake.stats.in_flight == 0)


@pytest.mark.fault("A2")
async def test_a_client_that_leaves_a_batch_harms_nobody_in_it() -> None:
    """While a first request runs, others of equal parameters are collected, and leave as one call."""
    path, body = FORMS["predict"]
    slow = Behaviour(delay_headers_s=0.5)
    batching = {"window_ms": 100}
    async with (
        fakes(1, slow) as (fake,),
        gateway_to(fake, batching=batching) as gateway,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(ask(gateway.url, path, body), name="first")
        await eventually(lambda: fake.stats.in_flight == 1)
        peers = [
            group.create_task(ask(gateway.url, path, {**body, "prompt": f"Peer {number}"}), name="peer")
            for number in range(3)
        ]
        asked = request(path, {**body, "prompt": "Leaver"})
        batched = WhileWaiting(
            lambda: eventually(lambda: b"Leaver" in b"".join(fake.stats.bodies(COMPLETIONS)))
        )
        left = await leave(gateway.url, asked, batched)
        await eventually(lambda: gateway.outcomes[Outcome.CLIENT_GONE] == 1)
        assert time.monotonic() - left.at_s < FREE_WITHIN_S
        answers = await asyncio.gather(first, *peers)
        assert [answer.status for answer in answers] == [200] * 4
        (shared,) = [sent for sent in fake.stats.bodies(COMPLETIONS) if b"Leaver" in sent]
        assert b"Peer" in shared
        assert gateway.outcomes == {Outcome.OK: 4, Outcome.CLIENT_GONE: 1}


@pytest.mark.fault("A2")
async def test_a_batch_that_everybody_leaves_ends_at_the_engine() -> None:
    path, body = FORMS["predict"]
    async with fakes(1, SILENT) as (fake,), gateway_to(fake) as gateway:
        async with connected(gateway.url) as first:
            await first.send(request(path, body))
            await eventually(lambda: fake.stats.in_flight == 1)
            async with connected(gateway.url) as second, connected(gateway.url) as third:
                for peer in (second, third):
                    await peer.send(request(path, {**body, "prompt": "Another"}))
                await eventually(lambda: fake.stats.in_flight == 2)
            await eventually(lambda: fake.stats.in_flight == 1)
        await eventually(lambda: fake.stats.in_flight == 0)
        assert gateway.outcomes == {Outcome.CLIENT_GONE: 3}
