"""The answers of `/predict`: the engine's answer in the route's own form, or what it broke off with."""

from __future__ import annotations

import gzip
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BackendFailed
from gateway.http.predictions import MAX_EVENT_BYTES, Prediction, PredictionStream
from gateway.upstream.headers import Told, read_answer
from tests.gateway.http.wire import Wire

MARKS = b"x-request-id: r\r\n"
BROKEN = BackendFailed("it broke")
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def _told(kind: bytes = b"application/json", coding: bytes = b"", version: bytes = b"v1") -> Told:
    headers = [(b"content-type", kind), (b"x-model-version", version)]
    if coding:
        headers.append((b"content-encoding", coding))
    return read_answer(headers)


def _completion(*choices: dict[str, Any], **more: Any) -> bytes:
    return msgspec.json.encode({"id": "c-1", "model": "m", "choices": choices, "usage": USAGE, **more})


def _event(*choices: dict[str, Any], **more: Any) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode({"id": "c-1", "model": "m", "choices": choices, **more})


STREAM = (
    _event({"index": 0, "text": "é"})
    + b": note\n\n"
    + _event({"index": 0, "text": "🙂", "finish_reason": "stop"})
    + _event(usage=USAGE)
    + b"data: [DONE]\n\n"
)


def _predicted(body: bytes, *, many: bool = False, coding: bytes = b"") -> tuple[Wire, bool]:
    wire = Wire()
    answer = Prediction(wire.exchange("/predict"), many=many)
    answer.head(200, _told(coding=coding), MARKS)
    answer.data(body[:10])
    answer.data(body[10:])
    return wire, answer.done()


def _streaming(*, many: bool = False) -> tuple[Wire, PredictionStream]:
    wire = Wire()
    answer = PredictionStream(wire.exchange("/predict"), many=many)
    answer.head(200, _told(b"text/event-stream"), MARKS)
    return wire, answer


@pytest.mark.parametrize(
    "choice",
    [
        {"index": 0, "text": "é🙂", "finish_reason": "stop"},
        {"index": 0, "message": {"role": "assistant", "content": "é🙂"}, "finish_reason": "stop"},
    ],
)
@pytest.mark.parametrize("coding", [b"", b"identity", b"gzip"])
def test_one_answer_has_a_text(choice: dict[str, Any], coding: bytes) -> None:
    body = _completion(choice)
    wire, done = _predicted(gzip.compress(body) if coding == b"gzip" else body, coding=coding)
    assert done
    assert wire.head.header("content-encoding") is None
    assert msgspec.json.decode(wire.content) == {
        "id": "c-1",
        "model": "m",
        "version": "v1",
        "text": "é🙂",
        "finish_reason": "stop",
        "usage": USAGE,
        "cached": False,
    }


def test_several_answers_are_a_list_in_the_prompts_order() -> None:
    wire, done = _predicted(_completion({"index": 1, "text": "b"}, {"index": 0, "text": "a"}), many=True)
    assert done
    outputs = msgspec.json.decode(wire.content)["outputs"]
    assert [(output["index"], output["text"]) for output in outputs] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"", b""),
        (b"<html>", b""),
        (b"null", b""),
        (b"[]", b""),
        (b'{"choices":[]}', b""),
        (b'{"choices":null}', b""),
        (b'{"choices":[{"text":"x"}]', b""),
        (b'{"choices":[{"text":"\xff"}]}', b""),
        (_completion({"text": "x"}), b"gzip"),
        (gzip.compress(_completion({"text": "x"}), mtime=0)[:-9], b"gzip"),
    ],
)
def test_what_is_no_answer_is_not_passed_off_as_one(body: bytes, coding: bytes) -> None:
    wire, done = _predicted(body, coding=coding)
    assert not done
    assert wire.sent == b""


@pytest.mark.parametrize("form", [Prediction, PredictionStream])
@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a_refusal_of_the_engine_passes_as_it_came(
    form: type[Prediction] | type[PredictionStream], status: int
) -> None:
    wire = Wire()
    answer = form(wire.exchange("/predict"), many=False)
    answer.head(status, _told(b"text/html"), MARKS)
    answer.data(b"<html>no</html>")
    assert answer.done()
    assert (wire.status, wire.content) == (status, b"<html>no</html>")
    assert wire.head.header("content-type") == "text/html"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_is_translated_whatever_its_cuts(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    wire, answer = _streaming()
    edges = [0, *sorted(cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        answer.data(stream[start:end])
    assert answer.done()
    assert wire.data[-1] == "[DONE]"
    first, second, last = map(msgspec.json.decode, wire.data[:-1])
    assert first == {"id": "c-1", "model": "m", "version": "v1", "text": "é", "finish_reason": None}
    assert second["text"] == "🙂"
    assert second["finish_reason"] == "stop"
    assert last == {"id": "c-1", "model": "m", "version": "v1", "usage": USAGE, "cached": False}
    assert answer.usage() == (3, 2)


def test_pieces_of_several_answers_say_whose_they_are() -> None:
    wire, answer = _streaming(many=True)
    answer.data(_event({"index": 1, "text": "b"}) + _event({"index": 0, "text": "a"}))
    assert [msgspec.json.decode(data)["index"] for data in wire.data] == [1, 0]


@pytest.mark.parametrize("cut", range(0, len(STREAM) - len("[DONE]\n\n"), 5))
def test_a_stream_that_stops_anywhere_ends_in_an_error_event(cut: int) -> None:
    wire, answer = _streaming()
    answer.data(STREAM[:cut])
    assert not answer.done()
    answer.broken(BROKEN, MARKS)
    assert "[DONE]" not in wire.data
    assert msgspec.json.decode(wire.data[-1])["error"]["message"] == "it broke"
    assert wire.ended


@pytest.mark.parametrize(
    "damaged", [b"data: {\n\n", b"data: \xff\n\n", b'data: {"choices":7}\n\n', b"data: x\n\n"]
)
def test_a_piece_that_cannot_be_read_ends_the_stream(damaged: bytes) -> None:
    wire, answer = _streaming()
    answer.data(_event({"index": 0, "text": "a"}))
    answer.data(damaged)
    answer.data(_event({"index": 0, "text": "b"}) + b"data: [DONE]\n\n")
    assert not answer.done()
    answer.broken(BROKEN, MARKS)
    texts = [msgspec.json.decode(data).get("text") for data in wire.data]
    assert texts == ["a", None], "a text with a hole would look like an answer"


def test_an_engine_that_says_that_it_failed_is_quoted_and_nothing_more_is_said() -> None:
    wire, answer = _streaming()
    answer.data(_event({"index": 0, "text": "a"}) + b'data: {"error":{"message":"dead","code":500}}\n\n')
    answer.data(b"data: [DONE]\n\n")
    assert not answer.done()
    answer.broken(BROKEN, MARKS)
    assert wire.data[1:] == ['{"error":{"message":"dead","code":500}}']
    assert wire.ended


def test_an_event_without_end_is_not_kept() -> None:
    wire, answer = _streaming()
    piece = b"x" * 1_000_000
    answer.data(b"data: ")
    for _ in range(2 + MAX_EVENT_BYTES // len(piece)):
        answer.data(piece)
    answer.data(b"\n\ndata: [DONE]\n\n")
    assert not answer.done()
    assert wire.content == b""


def test_silence_is_filled_with_comments_and_a_late_refusal_is_an_error_event() -> None:
    wire = Wire()
    answer = PredictionStream(wire.exchange("/predict"), many=False)
    assert answer.heartbeat(MARKS)
    answer.head(400, _told(), MARKS)
    answer.data(b'{"error":{"message":"no"}}')
    assert answer.done()
    assert wire.content == b': keep-alive\n\ndata: {"error":{"message":"no"}}\n\n'


def test_whoever_waits_for_a_whole_answer_gets_no_comments() -> None:
    wire = Wire()
    assert not Prediction(wire.exchange("/predict"), many=False).heartbeat(MARKS)
    assert wire.sent == b""
