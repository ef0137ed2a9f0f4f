"""Where an event ends, whatever the cuts and line ends."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BackendFailed
from gateway.http.sse import boundary, error_event, rejection_event
from tests.drivers.sse import EventParser

_LINES = st.sampled_from(["data: x", "data:", "data: é🙂", ": note", "event: end", "id: 1", "retry", ""])
_ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(lines=st.lists(_LINES, max_size=12), end=_ENDS, cut=st.integers(0, 400))
def test_what_is_behind_the_boundary_never_belongs_to_what_is_before_it(
    lines: list[str], end: str, cut: int
) -> None:
    stream = "".join(line + end for line in lines).encode()
    seen = stream[:cut]
    at = boundary(seen)
    assert 0 <= at <= len(seen)
    whole, apart = EventParser(), EventParser()
    together = whole.feed(stream, 0.0)
    first = apart.feed(stream[:at], 0.0)
    # A word of the gateway's own between the two changes nothing.
    word = apart.feed(b": word\n\n", 0.0)
    assert first + word + apart.feed(stream[at:], 0.0) == together


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_whole_event_is_never_held_back(end: bytes) -> None:
    event = b"data: x" + end + end
    assert boundary(event) == len(event)
    assert boundary(event + b"data: half") == len(event)
    assert boundary(event + event) == 2 * len(event)


@pytest.mark.parametrize("part", [b"", b"data: x", b"data: x\n", b"data: x\r\n", b"data: x\r\n\r", b"\n"])
def test_a_part_of_an_event_is_none(part: bytes) -> None:
    assert boundary(part) == 0


@given(st.text())
def test_an_error_event_is_one_event_whatever_its_message(message: str) -> None:
    events = EventParser().feed(error_event(BackendFailed(message)), 0.0)
    assert len(events) == 1
    assert msgspec.json.decode(events[0].data)["error"]["message"] == message


@given(st.binary())
def test_a_rejection_event_is_one_event_whatever_the_engine_said(body: bytes) -> None:
    events = EventParser().feed(rejection_event(400, body), 0.0)
    assert len(events) == 1
    assert "error" in msgspec.json.decode(events[0].data)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too long", "code": 400}}', "too long"),
        (b'{"detail": "too long"}', '{"detail": "too long"}'),
        (b"<html>\r\n\r\nno</html>", "<html>\r\n\r\nno</html>"),
        (b"\xff\xfe", "��"),
        (b"", "The engine answered with status 400."),
        (b'{"error": "a sentence"}', "a sentence"),
        (b'{"error": NaN}', '{"error": NaN}'),
    ],
)
def test_a_rejection_says_what_the_engine_said(body: bytes, message: str) -> None:
    [event] = EventParser().feed(rejection_event(400, body), 0.0)
    error = msgspec.json.decode(event.data)["error"]
    assert error["message"] == message
    assert {"message", "type", "param", "code"} <= error.keys() or "too long" in error["message"]
