"""Streams through nginx: as they are written, whole or visibly broken, and ended when their reader leaves."""

from __future__ import annotations

import pytest

from backends.fake import Behaviour, Cut, Ending, Point
from tests.drivers.leaving import AfterEvents, How, WhileWaiting, leave
from tests.drivers.many import many
from tests.drivers.nginx import edge
from tests.drivers.process import running_gateway
from tests.drivers.raw import connected, request
from tests.drivers.slow import ask_slowly, not_reading, read_slowly
from tests.drivers.sse import Ended, record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, STREAMS, fakes, gateway_to, settings_for

MIB = 1024 * 1024
STREAMED = list(STREAMS.values())
HOW = pytest.mark.parametrize("how", list(How), ids=[how.name.lower() for how in How])


async def test_each_token_arrives_when_it_is_computed() -> None:
    """Buffered, all events would arrive together: the time from first to last would be nothing."""
    slow = Behaviour(tokens=10, tokens_per_s=20)
    async with fakes(1, slow) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for stream in (await many(len(STREAMED), lambda number: record(front.url, *STREAMED[number]))).all():
            assert stream.done
            times = [event.at_s for event in stream.events]
            assert times[-1] - times[0] > 0.3
            assert len(stream.reads) >= 8


@HOW
async def test_the_engine_is_free_when_a_client_of_nginx_leaves(how: How) -> None:
    silent = Behaviour(delay_headers_s=30)
    stuck = Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=3))
    async with fakes(1, silent) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for path, body in FORMS.values():
            waiting = WhileWaiting(lambda: eventually(lambda: fake.stats.in_flight == 1))
            await leave(front.url, request(path, body), waiting, how)
            await eventually(lambda: fake.stats.in_flight == 0)
        fake.behave(stuck)
        for path, body in STREAMS.values():
            await leave(front.url, request(path, body), AfterEvents(2), how)
            await eventually(lambda: fake.stats.in_flight == 0)


@pytest.mark.fault("C6")
async def test_a_first_token_that_takes_longer_than_nginx_waits_arrives() -> None:
    late = Behaviour(delay_first_chunk_s=2.6)
    async with (
        fakes(1, late) as (fake,),
        gateway_to(fake, timeouts={"heartbeat_s": 0.3, "silence_s": 10}) as gateway,
        edge([gateway.url], {"EDGE_READ_TIMEOUT": "1s"}) as front,
    ):
        for stream in (await many(len(STREAMED), lambda number: record(front.url, *STREAMED[number]))).all():
            assert stream.done
            assert len(stream.comments) >= 4
        assert all(record.ttft is not None and record.ttft > 2.5 for record in gateway.records)


async def test_a_stream_that_breaks_does_not_end_as_if_it_were_whole() -> None:
    broken = Behaviour(cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=3))
    async with fakes(1, broken) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for path, body in STREAMS.values():
            stream = await record(front.url, path, body)
            assert stream.errors or stream.ended is not Ended.WHOLE
            assert not stream.done


@pytest.mark.parametrize("form", list(STREAMS))
async def test_a_killed_gateway_leaves_its_stream_broken_and_not_ended(form: str) -> None:
    path, body = STREAMS[form]
    endless = Behaviour(tokens=1000, tokens_per_s=50)
    async with (
        fakes(1, endless) as (fake,),
        running_gateway(settings_for(fake.url)) as gateway,
        edge([gateway.url]) as front,
        connected(front.url) as peer,
    ):
        await peer.send(request(path, body))
        while peer.received.count(b"data: ") < 3:
            assert await peer.receive()
        gateway.process.kill()
        while await peer.receive():
            pass
        assert not peer.received.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in peer.received


async def test_a_reader_that_is_slow_costs_little_memory_and_gets_everything() -> None:
    each = Behaviour(tokens=400, event_bytes=50_000)
    async with fakes(1, each) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        body = {"prompt": "x", "stream": True, "max_tokens": 400}
        async with not_reading(front.url, request("/v1/completions", body)) as peer:
            await eventually(lambda: gateway.members[0].in_flight == 1)
            assert await read_slowly(peer, 40_960, 4_096) == 4_096
            assert front.resident_bytes < 60 * MIB
            assert gateway.gateway.edge.buffered < 4 * MIB
            while b"[DONE]" not in peer.received[-64:]:
                assert await peer.receive()
        assert len(peer.received) > 20_000_000


async def test_a_slow_upload_reaches_a_gateway_only_when_it_is_whole() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        asked = request("/predict", {"prompt": "x" * 400})
        response = await ask_slowly(front.url, asked, piece=64, gap_s=0.02)
        assert response.status == 200
        assert gateway.records[0].duration < 0.1
