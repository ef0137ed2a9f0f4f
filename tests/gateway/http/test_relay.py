"""The answers of the OpenAI routes: bytes out are bytes in, and a broken answer never looks whole."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BackendFailed
from gateway.http.relay import Relay, read_usage
from gateway.http.routes import OPENAI_ENDING, RESPONSES_ENDING, Ending
from gateway.upstream.headers import Told, read_answer
from tests.gateway.http.wire import Wire

STREAM = (
    'data: {"choices":[{"text":"é🙂"}]}\n\n: note\n\ndata: {"choices":[],"usage":'
    '{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n'
).encode()
MARKS = b"x-request-id: r\r\n"
BROKEN = BackendFailed('it "broke"\noff')


def _told(kind: bytes = b"text/event-stream", length: int | None = None, coding: bytes = b"") -> Told:
    headers = [(b"content-type", kind)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    if coding:
        headers.append((b"content-encoding", coding))
    return read_answer(headers)


def _streaming(ending: Ending = OPENAI_ENDING) -> tuple[Wire, Relay]:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=True, ending=ending)
    relay.head(200, _told(), MARKS)
    return wire, relay


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("space", [b"data: ", b"data:"])
@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, 200), max_size=20))
def test_a_stream_passes_byte_for_byte_whatever_its_cuts(
    line_end: bytes, space: bytes, cuts: list[int]
) -> None:
    stream = STREAM.replace(b"data: ", space).replace(b"\n", line_end)
    wire, relay = _streaming()
    edges = [0, *sorted(cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        relay.data(stream[start:end])
    assert relay.done()
    assert wire.content == stream
    assert wire.ended
    assert relay.usage() == (3, 4)


@pytest.mark.parametrize("cut", range(0, len(STREAM) - len("[DONE]\n\n"), 3))
def test_a_stream_that_stops_anywhere_ends_in_an_error_event(cut: int) -> None:
    wire, relay = _streaming()
    relay.data(STREAM[:cut])
    assert not relay.done()
    relay.broken(BROKEN, MARKS)
    assert wire.ended, "the message is whole, its content says that it is not"
    assert "[DONE]" not in wire.data
    assert msgspec.json.decode(wire.data[-1])["error"]["message"] == BROKEN.message
    for data in wire.data:
        msgspec.json.decode(data)


def test_a_stream_without_its_last_empty_line_is_whole() -> None:
    wire, relay = _streaming()
    relay.data(STREAM[:-2])
    assert relay.done()
    assert wire.content == STREAM[:-2]


@pytest.mark.parametrize(
    "text",
    [
        b'data: {"text":"data: [DONE]"}\n\n',
        b'data: {"text":"\\ndata: [DONE]"}\n\n',
        b": data: [DONE]\n\n",
        b"event: [DONE]\n\n",
        b"data: [DONE\n\n",
    ],
)
def test_what_only_looks_like_the_end_is_not_the_end(text: bytes) -> None:
    _wire, relay = _streaming()
    relay.data(text)
    assert not relay.done()


@pytest.mark.parametrize("kind", [b"completed", b"incomplete", b"failed"])
def test_a_stream_of_the_responses_api_has_an_end_of_its_own(kind: bytes) -> None:
    _wire, relay = _streaming(RESPONSES_ENDING)
    relay.data(b'event: response.created\ndata: {"type":"response.created"}\n\n')
    assert not relay.done()
    relay.data(b'event: response.%b\ndata: {"type":"response.%b"}\n\n' % (kind, kind))
    assert relay.done()


def test_an_event_of_a_megabyte_passes_and_is_not_kept() -> None:
    wire, relay = _streaming()
    event = b'data: {"text":"' + b"x" * 1_000_000 + b'"}\n\n'
    for at in range(0, len(event), 8_192):
        relay.data(event[at : at + 8_192])
        assert len(wire.sent) >= at - 128 * 1024
    relay.data(b"data: [DONE]\n\n")
    assert relay.done()
    assert wire.content == event + b"data: [DONE]\n\n"


def test_a_word_of_the_gateway_never_falls_into_an_event() -> None:
    wire, relay = _streaming()
    event = b'data: {"text":"' + b"x" * 200_000 + b'"}\n\n'
    relay.data(event[:100_000])
    relay.heartbeat(MARKS)
    relay.data(event[100_000:])
    relay.heartbeat(MARKS)
    relay.data(b"data: [DONE]\n\n")
    assert relay.done()
    assert wire.data == [event[6:-2].decode(), "[DONE]"]


def test_the_error_of_a_stream_that_breaks_inside_a_long_event_can_be_read() -> None:
    wire, relay = _streaming()
    relay.data(b'data: {"text":"' + b"x" * 200_000)
    relay.broken(BROKEN, MARKS)
    assert msgspec.json.decode(wire.data[-1])["error"]["message"] == BROKEN.message


def test_silence_is_filled_with_comments_before_and_between_events() -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=True, ending=OPENAI_ENDING)
    assert relay.heartbeat(MARKS)
    assert wire.head.header("content-type") == "text/event-stream; charset=utf-8"
    relay.head(200, _told(), MARKS)
    relay.data(STREAM[:20])
    assert relay.heartbeat(MARKS)
    relay.data(STREAM[20:])
    assert relay.done()
    assert wire.content == b": keep-alive\n\n" * 2 + STREAM


def test_a_stream_that_began_with_a_comment_says_its_version_in_another() -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=True, ending=OPENAI_ENDING)
    relay.heartbeat(MARKS)
    headers = [(b"content-type", b"text/event-stream"), (b"x-model-version", b"v7-1a2b3c4d")]
    relay.head(200, read_answer(headers), MARKS)
    relay.data(STREAM)
    assert relay.done()
    assert wire.content == b": keep-alive\n\n: x-model-version: v7-1a2b3c4d\n\n" + STREAM


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_refusal_after_a_comment_becomes_an_error_event(status: int) -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=True, ending=OPENAI_ENDING)
    relay.heartbeat(MARKS)
    body = b'{"error":{"message":"no","code":%d}}' % status
    relay.head(status, _told(b"application/json", len(body)), MARKS)
    relay.data(body[:5])
    relay.data(body[5:])
    assert relay.done()
    assert wire.data == [body.decode()]
    assert wire.ended


def test_whoever_did_not_ask_for_a_stream_gets_no_comments() -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=False, ending=OPENAI_ENDING)
    assert not relay.heartbeat(MARKS)
    assert wire.sent == b""


@pytest.mark.parametrize("status", [200, 400, 404, 500, 599])
@pytest.mark.parametrize("length", [None, 4])
@pytest.mark.parametrize("cuts", [[b"body"], [b"b", b"ody"]])
def test_a_plain_body_passes_with_its_status_and_type(
    status: int, length: int | None, cuts: list[bytes]
) -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=True, ending=OPENAI_ENDING)
    relay.head(status, _told(b"text/html", length), MARKS)
    for data in cuts:
        relay.data(data)
    assert relay.done()
    assert (wire.status, wire.content, wire.ended) == (status, b"body", True)
    assert wire.head.header("content-type") == "text/html"
    assert wire.head.header("x-request-id") == "r"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_may_have_no_body_has_none(status: int) -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=False, ending=OPENAI_ENDING)
    relay.head(status, _told(), MARKS)
    assert relay.done()
    assert (wire.status, wire.content, wire.ended) == (status, b"", True)


@pytest.mark.parametrize("sent", [b"", b"bo"])
@pytest.mark.parametrize("length", [None, 4])
def test_a_plain_body_that_breaks_never_ends_as_if_it_were_whole(sent: bytes, length: int | None) -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=False, ending=OPENAI_ENDING)
    relay.head(200, _told(b"application/json", length), MARKS)
    if sent:
        relay.data(sent)
    relay.broken(BROKEN, MARKS)
    if sent or length is None:
        assert not wire.ended
        assert wire.closed
    else:
        assert wire.status == 502


def test_a_compressed_stream_passes_unread() -> None:
    wire = Wire()
    relay = Relay(wire.exchange(), stream=True, ending=OPENAI_ENDING)
    relay.head(200, _told(coding=b"gzip"), MARKS)
    relay.data(b"\x1f\x8b\n\nnot for us")
    assert relay.done()
    assert wire.content == b"\x1f\x8b\n\nnot for us"
    assert wire.head.header("content-encoding") == "gzip"


def test_a_client_of_http_1_0_gets_a_stream_until_the_connection_closes() -> None:
    wire = Wire()
    exchange = wire.exchange(old_http=True)
    relay = Relay(exchange, stream=True, ending=OPENAI_ENDING)
    relay.head(200, _told(), MARKS)
    relay.data(STREAM)
    assert relay.done()
    assert wire.content == STREAM
    assert wire.head.header("transfer-encoding") is None
    assert wire.head.header("connection") == "close"


def test_the_last_usage_is_the_one_that_counts() -> None:
    tail = b'{"usage":{"prompt_tokens":1,"completion_tokens":2}} {"usage":{"completion_tokens": 5}}'
    assert read_usage(tail) == (0, 5)
    assert read_usage(b"") == (0, 0)
