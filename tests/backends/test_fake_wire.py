"""Every behaviour of the fake engine is shown to happen on the wire."""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Framing, LineEnd, Pieces, Point, Rule
from tests.drivers.framing import FramingError, ResponseParser
from tests.drivers.many import many
from tests.drivers.raw import ask, chunked_request, connected, request
from tests.drivers.slow import SMALL_BUFFER, ask_slowly, not_reading
from tests.drivers.sse import Ended, EventParser, record
from tests.drivers.waiting import always, eventually

COMPLETIONS = "/v1/completions"
PLAIN: dict[str, Any] = {"prompt": "Hello", "max_tokens": 8}
STREAM: dict[str, Any] = {**PLAIN, "stream": True}


async def test_delays_come_before_the_head_and_before_the_first_chunk() -> None:
    async with (
        Fake.start(Behaviour(delay_headers_s=0.1, delay_first_chunk_s=0.2)) as fake,
        connected(fake.url) as peer,
    ):
        began = time.monotonic()
        await peer.send(request(COMPLETIONS, STREAM))
        head = await peer.receive()
        headed = time.monotonic()
        await peer.receive()
        first = time.monotonic()
    assert head.endswith(b"\r\n\r\n")
    assert headed - began >= 0.1
    assert first - began >= 0.3


async def test_tokens_come_at_their_pace_and_counters_move_meanwhile() -> None:
    async with Fake.start(Behaviour(tokens_per_s=50, tokens=11)) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
        assert stream.events[10].at_s - stream.events[0].at_s >= 0.19
        async with connected(fake.url) as peer:
            before = fake.stats.generation_tokens
            await peer.send(request(COMPLETIONS, PLAIN))
            await eventually(lambda: 0 < fake.stats.generation_tokens - before < 11)
            assert len((await peer.response()).json()["choices"][0]["text"].split()) == 11


async def test_requests_beyond_the_slots_wait_in_order() -> None:
    async with Fake.start(Behaviour(slots=2, delay_first_chunk_s=0.02)) as fake:
        outcomes = await many(10, lambda _: ask(fake.url, COMPLETIONS, PLAIN), at_a_time=10)
        assert outcomes.counts(lambda response: response.status) == {200: 10}
        assert fake.stats.max_in_flight > 2
        fake.behave(Behaviour(slots=1, tokens_per_s=1))
        async with connected(fake.url) as first, connected(fake.url) as second:
            await first.send(request(COMPLETIONS, PLAIN))
            await eventually(lambda: fake.engine.running == 1)
            await second.send(request(COMPLETIONS, PLAIN))
            await eventually(lambda: fake.engine.waiting == 1)
            metrics = (await ask(fake.url, "/metrics")).body
            assert b'num_requests_running{engine="0",model_name="fake"} 1.0' in metrics
            assert b'num_requests_waiting{engine="0",model_name="fake"} 1.0' in metrics
            second.close()
            await eventually(lambda: fake.engine.waiting == 0)
            assert fake.engine.running == 1


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize(
    ("how", "ended"),
    [(Ending.RESET, Ended.RESET), (Ending.CLOSE, Ended.BROKEN), (Ending.END, Ended.WHOLE)],
    ids=str,
)
async def test_a_stream_is_cut_after_so_many_chunks(how: Ending, ended: Ended, count: int) -> None:
    async with Fake.start(Behaviour(cut=Cut(how=how, after=Point.CHUNKS, count=count))) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
    assert stream.ended is ended
    assert len(stream.events) == count
    assert not stream.done


async def test_a_reset_before_any_byte() -> None:
    async with Fake.start(Behaviour(cut=Cut(how=Ending.RESET, after=Point.NOTHING))) as fake:
        for body in (PLAIN, STREAM):
            async with connected(fake.url) as peer:
                await peer.send(request(COMPLETIONS, body))
                with pytest.raises(ConnectionResetError):
                    await peer.receive()
            assert peer.received == b""


async def test_a_close_before_any_byte() -> None:
    async with (
        Fake.start(Behaviour(cut=Cut(how=Ending.CLOSE, after=Point.NOTHING))) as fake,
        connected(fake.url) as peer,
    ):
        await peer.send(request(COMPLETIONS, PLAIN))
        await peer.ends()


async def test_a_reset_after_the_head() -> None:
    async with Fake.start(Behaviour(cut=Cut(how=Ending.RESET))) as fake, connected(fake.url) as peer:
        await peer.send(request(COMPLETIONS, PLAIN))
        with pytest.raises(ConnectionResetError):
            await peer.response()
    assert peer.received.startswith(b"HTTP/1.1 200 OK\r\n") and peer.received.endswith(b"\r\n\r\n")


async def test_half_a_body() -> None:
    async with (
        Fake.start(Behaviour(cut=Cut(how=Ending.CLOSE, after=Point.BYTES, count=10))) as fake,
        connected(fake.url) as peer,
    ):
        await peer.send(request(COMPLETIONS, PLAIN))
        with pytest.raises(FramingError, match="closed in the body"):
            await peer.response()
    assert peer.received.partition(b"\r\n\r\n")[2] == b'{"id":"cmp'


@pytest.mark.parametrize(("after", "chunks"), [(Point.NOTHING, 0), (Point.HEAD, 0), (Point.CHUNKS, 2)])
async def test_silence_for_ever(after: Point, chunks: int) -> None:
    async with Fake.start(Behaviour(cut=Cut(how=Ending.SILENCE, after=after, count=chunks))) as fake:
        async with connected(fake.url) as peer:
            await peer.send(request(COMPLETIONS, STREAM))
            if after is not Point.NOTHING:
                while peer.received.count(b"\n\n") < chunks or b"\r\n\r\n" not in peer.received:
                    await peer.receive()
            received = len(peer.received)
            await eventually(lambda: fake.stats.in_flight == 1)
            await always(lambda: not peer.reader.at_eof() and fake.stats.in_flight == 1, during=0.1)
            assert len(peer.received) == received
        await eventually(lambda: fake.stats.in_flight == 0)


async def test_an_error_event_ends_a_stream_as_vllm_does() -> None:
    message = 'it said "no"\n\ndata: [DONE] \U0001f642'
    cut = Cut(how=Ending.ERROR_EVENT, after=Point.CHUNKS, count=2, message=message)
    async with Fake.start(Behaviour(cut=cut)) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
    assert stream.done and stream.ended is Ended.WHOLE
    assert stream.errors == [{"message": message, "type": "InternalServerError", "param": None, "code": 500}]


async def test_the_process_dies_in_mid_stream() -> None:
    async with Fake.start(Behaviour(cut=Cut(how=Ending.DIE, after=Point.CHUNKS, count=1))) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
        assert stream.ended is not Ended.WHOLE
        assert fake.dead.is_set()
        with pytest.raises(ConnectionRefusedError):
            await ask(fake.url, "/health")
        fake.behave(Behaviour())
        await fake.start_again()
        assert (await ask(fake.url, "/health")).status == 200


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"error":{"message":"x","nested":{"a":[1]}}}', "application/json"),
        ("<html>no</html>", "text/html"),
        ("", None),
        (None, None),
    ],
    ids=["nested", "html", "empty", "vllm's own"],
)
@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429, 500, 503])
async def test_a_wrong_status_with_any_body(status: int, body: str | None, content_type: str | None) -> None:
    behaviour = Behaviour(status=status, body=body, content_type=content_type, headers={"retry-after": "7"})
    async with Fake.start(behaviour) as fake:
        for asked in (PLAIN, STREAM):
            response = await ask(fake.url, COMPLETIONS, asked)
            assert (response.status, response.header("retry-after")) == (status, "7")
            if body is None:
                assert response.json()["error"]["code"] == status
            else:
                assert response.body.decode() == body
            if content_type:
                assert response.header("content-type") == content_type
        assert (await ask(fake.url, "/health")).status == 200


async def test_the_first_n_requests_fail_and_then_it_heals() -> None:
    async with Fake.start(Behaviour(rules=(Rule(first=3, status=500),))) as fake:
        statuses = [(await ask(fake.url, COMPLETIONS, PLAIN)).status for _ in range(5)]
    assert statuses == [500, 500, 500, 200, 200]


async def test_failures_by_chance_follow_from_the_seed() -> None:
    async def statuses(seed: int) -> list[int]:
        async with Fake.start(Behaviour(rules=(Rule(probability=0.5, status=503),), seed=seed)) as fake:
            return [(await ask(fake.url, COMPLETIONS, PLAIN)).status for _ in range(20)]

    first = await statuses(1)
    assert set(first) == {200, 503}
    assert await statuses(1) == first != await statuses(2)


async def test_one_prompt_of_a_list_makes_the_request_fail() -> None:
    async with Fake.start(Behaviour(rules=(Rule(contains="poison", status=400),))) as fake:
        assert (await ask(fake.url, COMPLETIONS, {"prompt": ["a", "poison"]})).status == 400
        assert (await ask(fake.url, COMPLETIONS, {"prompt": ["a", "b"]})).status == 200


async def test_rules_are_for_paths_and_the_first_wins() -> None:
    rules = (
        Rule(paths=("/v1/chat/*", "/metrics"), status=404),
        Rule(paths=("/health",), delay_headers_s=0.05),
        Rule(paths=("/v1/*",), status=429),
    )
    async with Fake.start(Behaviour(rules=rules)) as fake:
        assert (await ask(fake.url, "/v1/chat/completions", {"messages": []})).status == 404
        assert (await ask(fake.url, "/metrics")).status == 404
        assert (await ask(fake.url, COMPLETIONS, PLAIN)).status == 429
        began = time.monotonic()
        assert (await ask(fake.url, "/health")).status == 200
        assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("body", [PLAIN, STREAM], ids=["plain", "stream"])
async def test_gzip_whether_or_not_it_is_wanted(body: dict[str, Any]) -> None:
    async with Fake.start(Behaviour(gzip=True)) as fake:
        response = await ask(fake.url, COMPLETIONS, body)
        fake.behave(Behaviour())
        plain = await ask(fake.url, COMPLETIONS, body)
    assert response.header("content-encoding") == "gzip"
    assert len(response.decoded.split(b"choices")) == len(plain.body.split(b"choices"))


async def test_a_gzipped_stream_is_flushed_with_each_event() -> None:
    behaviour = Behaviour(
        gzip=True, cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=1), framing=Framing.CLOSE
    )
    async with Fake.start(behaviour) as fake, connected(fake.url) as peer:
        await peer.send(request(COMPLETIONS, STREAM))

        async def event() -> bool:
            await peer.receive()
            content = bytes(peer.received).partition(b"\r\n\r\n")[2]
            return b"\n\n" in zlib.decompressobj(wbits=31).decompress(content)

        await eventually(event)


@pytest.mark.parametrize("body", [PLAIN, STREAM], ids=["plain", "stream"])
async def test_an_answer_without_length_ends_with_the_connection(body: dict[str, Any]) -> None:
    async with Fake.start(Behaviour(framing=Framing.CLOSE)) as fake:
        response = await ask(fake.url, COMPLETIONS, body)
    assert response.header("content-length") is None and response.header("transfer-encoding") is None
    assert not response.keep_alive
    assert response.body.endswith(b"}" if body is PLAIN else b"data: [DONE]\n\n")


async def test_a_plain_answer_in_chunks() -> None:
    async with Fake.start(Behaviour(framing=Framing.CHUNKED, write_size=7)) as fake:
        response = await ask(fake.url, COMPLETIONS, PLAIN)
    assert response.header("transfer-encoding") == "chunked"
    assert response.raw.count(b"\r\n7\r\n") > 10
    assert response.json()["object"] == "text_completion"


@pytest.mark.parametrize("error", [-1, 1])
async def test_a_length_that_lies(error: int) -> None:
    async with Fake.start(Behaviour(length_error=error, close=True)) as fake:
        with pytest.raises(FramingError):
            await ask(fake.url, COMPLETIONS, PLAIN)


@pytest.mark.parametrize("status", [100, 102, 103])
async def test_an_informational_answer_comes_first(status: int) -> None:
    async with Fake.start(Behaviour(interim=status)) as fake:
        response = await ask(fake.url, COMPLETIONS, PLAIN)
    assert [head.status for head in response.interim] == [status]
    assert response.status == 200


async def test_an_answer_before_the_body_was_sent() -> None:
    async with (
        Fake.start(Behaviour(rules=(Rule(early=True, status=413),))) as fake,
        connected(fake.url) as peer,
    ):
        asked = request(COMPLETIONS, b"x" * 1000, headers=[("content-type", "application/json")])
        await peer.send(asked[:-500])
        assert (await peer.response()).status == 413
        await peer.send(asked[-500:])
        await peer.send(request(COMPLETIONS, b"{}", headers=[("content-type", "application/json")]))
        assert (await peer.response()).status == 413


async def test_an_early_answer_that_closes() -> None:
    async with (
        Fake.start(Behaviour(rules=(Rule(early=True, status=503, close=True),))) as fake,
        connected(fake.url) as peer,
    ):
        await peer.send(request(COMPLETIONS, b"x" * 1000)[:-500])
        response = await peer.response()
        assert (response.status, response.keep_alive) == (503, False)
        await peer.ends()


async def test_connection_close_and_other_hop_by_hop_headers() -> None:
    headers = {"connection": "close, x-foo", "x-foo": "1", "keep-alive": "timeout=5", "te": "trailers"}
    async with Fake.start(Behaviour(headers=headers)) as fake:
        response = await ask(fake.url, COMPLETIONS, PLAIN)
        assert {name: response.header(name) for name in headers} == headers
        fake.behave(Behaviour(close=True))
        async with connected(fake.url) as peer:
            await peer.send(request(COMPLETIONS, PLAIN))
            assert not (await peer.response()).keep_alive
            await peer.ends()


async def test_expect_continue_is_answered() -> None:
    async with Fake.start() as fake, connected(fake.url) as peer:
        asked = request(COMPLETIONS, PLAIN, headers=[("expect", "100-continue")])
        head, _, body = asked.partition(b"\r\n\r\n")
        await peer.send(head + b"\r\n\r\n")
        assert (await peer.receive()).startswith(b"HTTP/1.1 100 ")
        await peer.send(body)
        assert (await peer.response()).status == 200


async def test_idle_connections_are_closed_after_their_limit() -> None:
    async with Fake.start(Behaviour(idle_limit_s=0.2)) as fake, connected(fake.url) as peer:
        for _ in range(3):
            await peer.send(request(COMPLETIONS, PLAIN))
            assert (await peer.response()).keep_alive
            answered = time.monotonic()
        await peer.ends()
        assert time.monotonic() - answered >= 0.19
        assert fake.stats.connections_total == 1


@pytest.mark.parametrize("pieces", list(Pieces))
async def test_bytes_one_at_a_time_with_every_character_split(pieces: Pieces) -> None:
    behaviour = Behaviour(write_size=1, write_gap_s=0, multibyte=True, tokens=2, pieces=pieces)
    async with Fake.start(behaviour) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
        response = await ask(fake.url, COMPLETIONS, STREAM)
    assert stream.done and not stream.text().isascii()
    if pieces is Pieces.CHUNKS:
        assert response.raw.count(b"\r\n1\r\n") > 100


@pytest.mark.parametrize("pieces", list(Pieces))
async def test_a_stream_cut_in_two_at_an_offset(pieces: Pieces) -> None:
    async with Fake.start(Behaviour(multibyte=True, tokens=1)) as fake:
        whole = await record(fake.url, COMPLETIONS, STREAM, headers=[("x-request-id", "1")])
        for offset in (1, 5, 100, 201, len(whole.content) - 1):
            fake.behave(
                Behaviour(multibyte=True, tokens=1, split_at=offset, pieces=pieces, write_gap_s=0.005)
            )
            stream = await record(fake.url, COMPLETIONS, STREAM, headers=[("x-request-id", "1")])
            assert stream.text() == whole.text()
            if pieces is Pieces.CHUNKS:
                ends = {sum(len(data) for _, data in stream.reads[:at]) for at in range(len(stream.reads))}
                assert offset in ends, "the reader saw the cut"


@pytest.mark.parametrize("line_end", list(LineEnd))
@pytest.mark.parametrize("space", [True, False])
async def test_event_syntax(line_end: LineEnd, space: bool) -> None:
    behaviour = Behaviour(line_end=line_end, space_after_colon=space, comment_every=2, tokens=3)
    async with Fake.start(behaviour) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
    assert stream.done
    assert stream.comments == ["fake", "fake"]
    mark = {LineEnd.LF: b"\n", LineEnd.CRLF: b"\r\n", LineEnd.CR: b"\r"}[line_end]
    assert stream.content.endswith((b"data: [DONE]" if space else b"data:[DONE]") + mark + mark)


async def test_an_event_of_a_megabyte() -> None:
    async with Fake.start(Behaviour(event_bytes=1_000_000, tokens=2)) as fake:
        stream = await record(fake.url, COMPLETIONS, STREAM)
    assert [len(event["choices"][0]["text"]) for event in stream.json()] == [1_000_000, 1_000_000]


async def test_a_huge_answer_waits_for_its_reader() -> None:
    big, long = Behaviour(body_bytes=500_000_000), Behaviour(event_bytes=65_536, tokens=8_000)
    for asked, behaviour in ((PLAIN, big), (STREAM, long)):
        async with Fake.start(behaviour) as fake:
            async with not_reading(fake.url, request(COMPLETIONS, asked)):
                await eventually(lambda: fake.stats.statuses[200] == 1)
                await always(lambda: fake.stats.in_flight == 1, during=0.05)
                assert fake.stats.generation_tokens < 1_000
            await eventually(lambda: fake.stats.in_flight == 0)


async def test_a_big_body_is_whole() -> None:
    async with Fake.start(Behaviour(body_bytes=3_000_001)) as fake:
        response = await ask(fake.url, COMPLETIONS, PLAIN)
    assert len(response.body) == 3_000_001


async def test_a_deaf_engine_accepts_and_never_reads() -> None:
    async with (
        Fake.start(Behaviour(deaf=True)) as fake,
        connected(fake.url, receive_buffer=SMALL_BUFFER) as peer,
    ):
        await peer.send(request(COMPLETIONS, PLAIN))
        await eventually(lambda: fake.stats.connections_open == 1)
        await always(lambda: not fake.stats.requests, during=0.05)
        fake.behave(Behaviour())
        assert (await peer.response()).status == 200


async def test_a_frozen_engine_stands_still_and_goes_on() -> None:
    async with (
        Fake.start(Behaviour(tokens_per_s=200, tokens=20)) as fake,
        connected(fake.url) as stream,
        connected(fake.url) as other,
    ):
        await stream.send(request(COMPLETIONS, STREAM))
        await eventually(lambda: fake.stats.generation_tokens > 2)
        fake.freeze()
        tokens = fake.stats.generation_tokens
        await other.send(request("/health"))
        await always(lambda: fake.stats.generation_tokens <= tokens + 1, during=0.05)
        assert not fake.stats.requests["/health"]
        fake.thaw()
        assert (await other.response("GET")).status == 200
        assert EventParser().feed((await stream.response()).body, 0)[-1].data == "[DONE]"


async def test_a_freeze_ends_by_itself() -> None:
    async with Fake.start() as fake:
        fake.freeze(0.05)
        began = time.monotonic()
        assert (await ask(fake.url, "/health")).status == 200
        assert time.monotonic() - began >= 0.04


async def test_counters_that_stand_still_while_tokens_flow() -> None:
    async with Fake.start() as fake:
        await ask(fake.url, COMPLETIONS, PLAIN)
        fake.behave(Behaviour(frozen_counters=True))
        before = (await ask(fake.url, "/metrics")).body
        await ask(fake.url, COMPLETIONS, PLAIN)
        after = (await ask(fake.url, "/metrics")).body
        assert b'generation_tokens_total{engine="0",model_name="fake"} 8.0' in before
        assert b'generation_tokens_total{engine="0",model_name="fake"} 8.0' in after


async def test_control_calls_are_refused_and_a_cache_is_not_reset() -> None:
    rules = (
        Rule(paths=("/collective_rpc",), status=500),
        Rule(paths=("/pause",), cut=Cut(how=Ending.SILENCE)),
    )
    async with Fake.start(Behaviour(rules=rules, reset_prefix_cache_succeeds=False, version="v1")) as fake:
        order = {"method": "reload_weights", "kwargs": {"weights_path": "/checkpoints/v2"}}
        assert (await ask(fake.url, "/collective_rpc", order)).status == 500
        assert fake.engine.weights == "v1"
        assert (await ask(fake.url, "/reset_prefix_cache", {})).json() == {"success": False}


async def test_an_answer_without_choices_and_an_aborted_one() -> None:
    async with Fake.start(Behaviour(empty_choices=True)) as fake:
        assert (await ask(fake.url, COMPLETIONS, PLAIN)).json()["choices"] == []
        assert (await record(fake.url, COMPLETIONS, STREAM)).done
        fake.behave(Behaviour(finish_reason="abort"))
        assert (await ask(fake.url, COMPLETIONS, PLAIN)).json()["choices"][0]["finish_reason"] == "abort"


async def test_requests_are_kept_as_they_came() -> None:
    async with Fake.start() as fake:
        async with connected(fake.url) as peer:
            body = b'{"prompt": "caf\\u00e9",  "unknown": [1.50, null]}'
            await peer.send(
                request(COMPLETIONS, body, headers=[("Content-Type", "application/json"), ("X-Custom", "Ab")])
            )
            await peer.response()
        await ask_slowly(fake.url, chunked_request(COMPLETIONS, [b'{"prompt"', b':"b"}']), piece=11)
    first, second = fake.stats.seen
    assert first.body == body
    assert (b"X-Custom", b"Ab") in first.headers
    assert second.body == b'{"prompt":"b"}'
    assert (first.connection, second.connection) == (1, 2)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with Fake.start(Behaviour(delay_first_chunk_s=0.01)) as fake, connected(fake.url) as peer:
        asked = [request(COMPLETIONS, PLAIN), request("/version"), request(COMPLETIONS, {"prompt": "x"})]
        await peer.send(b"".join(asked))
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 3:
            received += await peer.receive()
    kinds = [
        received.find(b"text_completion"),
        received.find(b'{"version"'),
        received.rfind(b"text_completion"),
    ]
    assert -1 not in kinds and kinds == sorted(kinds)


async def test_what_is_no_http_is_refused() -> None:
    async with Fake.start() as fake, connected(fake.url) as peer:
        await peer.send(b"garbage\r\n\r\n")
        response = await peer.response()
        assert (response.status, response.keep_alive) == (400, False)


async def test_a_unix_socket(tmp_path: Any) -> None:
    async with Fake.start(port=None, uds=tmp_path / "engine.sock") as fake:
        assert fake.url == f"unix:{tmp_path}/engine.sock"
        assert (await ask(fake.url, COMPLETIONS, PLAIN)).status == 200


async def test_killed_and_started_again_on_the_same_port() -> None:
    async with Fake.start(Behaviour(tokens_per_s=1)) as fake, connected(fake.url) as peer:
        await peer.send(request(COMPLETIONS, STREAM))
        await eventually(lambda: fake.stats.in_flight == 1)
        port = fake.port
        await fake.kill()
        with pytest.raises(ConnectionResetError):
            await peer.response()
        with pytest.raises(ConnectionRefusedError):
            await ask(fake.url, "/health")
        assert (fake.stats.in_flight, fake.stats.connections_open, fake.stats.gone_total) == (0, 0, 0)
        await fake.start_again()
        assert fake.port == port
        assert (await ask(fake.url, "/health")).status == 200


async def test_keep_alive_comments_come_while_nothing_else_does() -> None:
    behaviour = Behaviour(slots=1, delay_first_chunk_s=0.2, keep_alive_s=0.03, tokens=2)
    async with Fake.start(behaviour) as fake:
        streams = await many(2, lambda _: record(fake.url, COMPLETIONS, STREAM))
        for stream in streams.all():
            assert stream.done
            assert set(stream.comments) == {"keep-alive"}
            assert stream.content.startswith(b": keep-alive\n\n")
        cut = Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=1)
        fake.behave(Behaviour(keep_alive_s=0.02, cut=cut))
        async with connected(fake.url) as peer:
            await peer.send(request(COMPLETIONS, STREAM))
            while peer.received.count(b": keep-alive\n\n") < 3:
                await peer.receive()
            assert peer.received.count(b"data: ") == 1


async def test_an_engine_that_retires_ends_what_runs_and_takes_nothing_new() -> None:
    async with Fake.start(Behaviour(tokens_per_s=50)) as fake, connected(fake.url) as idle:
        await idle.send(request("/health"))
        await idle.response("GET")
        async with connected(fake.url) as busy:
            await busy.send(request(COMPLETIONS, STREAM))
            await eventually(lambda: fake.engine.running == 1)
            await fake.retire()
            events = EventParser().feed((await busy.response()).body, 0)
            await busy.ends()
        await idle.ends()
        assert events[-1].data == "[DONE]"
        with pytest.raises(ConnectionRefusedError):
            await ask(fake.url, "/health")
        await fake.start_again()
        assert (await ask(fake.url, "/health")).status == 200


async def test_an_answer_that_is_no_http_at_all() -> None:
    async with Fake.start(Behaviour(raw="HTTP/9 what?\r\n\r\n", close=True)) as fake:
        with pytest.raises(FramingError, match="no status line"):
            await ask(fake.url, COMPLETIONS, PLAIN)


async def test_bytes_after_an_answer() -> None:
    trailing = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother"
    async with Fake.start(Behaviour(trailing=trailing)) as fake, connected(fake.url) as peer:
        await peer.send(request(COMPLETIONS, PLAIN))
        while not peer.received.endswith(b"other"):
            await peer.receive()
    with pytest.raises(FramingError, match="bytes after the end"):
        ResponseParser().feed(bytes(peer.received))
