"""One time limit serves for four: a long answer is cut, or a dead one is waited for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Point
from gateway.observe.outcome import Outcome
from tests.drivers.many import many
from tests.drivers.raw import ask
from tests.drivers.sse import Ended, record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, fakes, gateway_to

STREAMED = [FORMS[name] for name in FORMS if name.endswith("stream")]
WHOLE = [FORMS[name] for name in FORMS if not name.endswith("stream")]
SHORT = {"first_byte_s": 0.3, "silence_s": 0.3, "heartbeat_s": 0.3, "connect_s": 0.2}


@pytest.mark.fault("C1")
@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(Behaviour(delay_headers_s=30), id="nothing at all"),
        pytest.param(Behaviour(delay_first_chunk_s=30), id="a head and nothing more, as vLLM does"),
        pytest.param(Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.HEAD)), id="a head and silence"),
    ],
)
async def test_a_stream_that_never_begins_is_a_504_at_the_first_byte_limit(silent: Behaviour) -> None:
    limits = {**SHORT, "silence_s": 20, "heartbeat_s": 20}
    async with fakes(1, silent) as (fake,), gateway_to(fake, timeouts=limits) as gateway:
        for path, body in STREAMED:
            response = await ask(gateway.url, path, body)
            assert response.status == 504
            assert response.json()["error"]["code"] == "deadline_exceeded"
            assert response.header("content-type") == "application/json"
        assert gateway.outcomes == {Outcome.TIMEOUT: len(STREAMED)}
        assert gateway.members[0].failures == len(STREAMED)


@pytest.mark.fault("C1")
async def test_a_first_token_that_takes_its_time_is_not_silence() -> None:
    """vLLM sends the head of a stream at once, and the first token when the prompt has been read."""
    limits = {"first_byte_s": 5, "silence_s": 0.2, "heartbeat_s": 0.2}
    slow = Behaviour(delay_first_chunk_s=0.6)
    async with fakes(1, slow) as (fake,), gateway_to(fake, timeouts=limits) as gateway:
        outcomes = await many(len(STREAMED), lambda number: record(gateway.url, *STREAMED[number]))
        for stream in outcomes.all():
            assert stream.done, stream.content
            assert not stream.errors


@pytest.mark.fault("C1")
async def test_a_long_stream_is_not_cut_by_the_limits_that_are_not_about_its_length() -> None:
    slow = Behaviour(delay_first_chunk_s=0.1, tokens=16, tokens_per_s=10)
    async with fakes(1, slow) as (fake,), gateway_to(fake, timeouts=SHORT | {"total_s": 1}) as gateway:
        for path, body in STREAMED[1:2]:
            stream = await record(gateway.url, path, body)
            assert stream.done
            assert len(stream.events) >= 16


@pytest.mark.fault("C1")
async def test_the_limits_of_the_whole_end_it() -> None:
    endless = Behaviour(tokens=1000, tokens_per_s=20)
    limits = {
        "total_s": 0.5,
        "stream_total_s": 0.5,
        "first_byte_s": 0.4,
        "silence_s": 0.4,
        "heartbeat_s": 0.4,
    }
    limits["connect_s"] = 0.3
    async with fakes(1, endless) as (fake,), gateway_to(fake, timeouts=limits) as gateway:
        for path, body in STREAMED:
            stream = await record(gateway.url, path, body)
            assert stream.ended is Ended.WHOLE
            assert not stream.done
            assert len(stream.errors) == 1
        for path, body in WHOLE:
            assert (await ask(gateway.url, path, body)).status == 504
        assert gateway.members[0].failures <= len(WHOLE), "a long answer is no fault of the engine's"


@pytest.mark.fault("C1")
async def test_a_callers_own_limit_counts_where_it_is_shorter() -> None:
    async with fakes(1, Behaviour(delay_headers_s=30)) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body, headers=[("x-request-timeout", "0.1")])
            assert response.status == 504
        assert (await ask(gateway.url, "/predict", {"prompt": "x", "timeout": 0.1})).status == 504
        assert gateway.members[0].failures == 0


@pytest.mark.fault("C2")
async def test_a_stream_that_falls_silent_ends_in_an_error_event_at_the_silence_limit() -> None:
    stuck = Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=3))
    async with fakes(1, stuck) as (fake,), gateway_to(fake, timeouts=SHORT) as gateway:
        for path, body in STREAMED:
            stream = await record(gateway.url, path, {**body, "max_tokens": 8})
            assert stream.status == 200
            assert stream.ended is Ended.WHOLE
            assert len(stream.events) == 4
            assert len(stream.errors) == 1
            assert not stream.done
        assert gateway.outcomes == {Outcome.TRUNCATED: len(STREAMED)}
        assert gateway.members[0].failures == len(STREAMED)
        await eventually(lambda: fake.stats.in_flight == 0)


@pytest.mark.fault("C2")
async def test_a_whole_answer_that_stops_in_its_middle_never_looks_whole() -> None:
    stuck = Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.BYTES, count=40))
    async with fakes(1, stuck) as (fake,), gateway_to(fake, timeouts=SHORT) as gateway:
        for path, body in WHOLE:
            if path == "/predict":
                assert (await ask(gateway.url, path, body)).status == 504
            else:
                with pytest.raises(AssertionError, match="closed in the body"):
                    await ask(gateway.url, path, body)


@pytest.mark.fault("C6")
@pytest.mark.parametrize("field", ["delay_headers_s", "delay_first_chunk_s"])
async def test_a_silent_stream_is_kept_alive_by_comments_that_are_no_first_token(field: str) -> None:
    late = msgspec.structs.replace(Behaviour(), **{field: 1.2})
    limits: dict[str, Any] = {"heartbeat_s": 0.2, "silence_s": 5}
    async with fakes(1, late) as (fake,), gateway_to(fake, timeouts=limits) as gateway:
        outcomes = await many(len(STREAMED), lambda number: record(gateway.url, *STREAMED[number]))
        for stream in outcomes.all():
            assert stream.done
            assert len(stream.comments) >= 2
            assert stream.reads[0][1].startswith(b": ")
            assert stream.longest_gap_s < 1.0, "a proxy would have cut it"
            assert stream.head is not None
            assert stream.head.header("content-type") == "text/event-stream; charset=utf-8"
        for request in gateway.records:
            assert request.ttft is not None
            assert request.ttft > 1.1


@pytest.mark.fault("C6")
async def test_comments_go_on_between_tokens_that_are_far_apart() -> None:
    slow = Behaviour(tokens=3, tokens_per_s=2)
    async with fakes(1, slow) as (fake,), gateway_to(fake, timeouts={"heartbeat_s": 0.15}) as gateway:
        stream = await record(gateway.url, *STREAMED[2])
        assert stream.done
        assert len(stream.comments) >= 3


@pytest.mark.fault("C6")
async def test_a_refusal_after_a_comment_is_an_error_event() -> None:
    refusing = Behaviour(delay_headers_s=0.5, status=429)
    async with fakes(1, refusing) as (fake,), gateway_to(fake, timeouts={"heartbeat_s": 0.2}) as gateway:
        for path, body in STREAMED:
            stream = await record(gateway.url, path, body)
            assert stream.status == 200
            assert len(stream.errors) == 1
            assert not stream.done


@pytest.mark.fault("C6")
async def test_a_stream_that_waits_in_the_queue_is_kept_alive_too() -> None:
    busy = Behaviour(tokens=2, delay_headers_s=0.6)
    async with (
        fakes(1, busy) as (fake,),
        gateway_to(fake, timeouts={"heartbeat_s": 0.2}, limits={"max_in_flight": 1}) as gateway,
    ):
        outcomes = await many(2, lambda number: record(gateway.url, *STREAMED[1]))
        first, second = sorted(len(stream.comments) for stream in outcomes.all())
        assert second > first
        assert all(stream.done for stream in outcomes.all())
