"""The event parser against the examples and rules of the HTML Standard."""

from __future__ import annotations

import pytest

from tests.drivers.sse import EventParser

STREAM = ': note\n\ndata: {"a":\ndata: "é🙂"}\n\nevent: end\ndata:[DONE]\nid: 7\n\n'


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_events_are_read_whatever_cuts_and_line_ends(line_end: str, size: int) -> None:
    stream = STREAM.replace("\n", line_end).encode()
    parser = EventParser()
    events = []
    for at in range(0, len(stream), size):
        events += parser.feed(stream[at : at + size], 0.0)
    assert [(event.data, event.kind) for event in events] == [('{"a":\n"é🙂"}', "message"), ("[DONE]", "end")]
    assert parser.comments == ["note"]
    assert parser.rest.strip() == ""


def test_an_event_without_its_blank_line_is_not_one() -> None:
    parser = EventParser()
    assert parser.feed(b"data: half", 0.0) == []
    assert parser.rest == "data: half"


def test_one_space_after_the_colon_is_taken_away_and_no_more() -> None:
    assert [event.data for event in EventParser().feed(b"data:  x\n\ndata:y\n\ndata\n\n", 0.0)] == [
        " x",
        "y",
        "",
    ]


def test_a_byte_order_mark_is_ignored() -> None:
    assert [event.data for event in EventParser().feed(b"\xef\xbb\xbfdata: x\n\n", 0.0)] == ["x"]


def test_what_is_no_utf8_is_an_error() -> None:
    with pytest.raises(UnicodeDecodeError):
        EventParser().feed(b"data: \xff\n\n", 0.0)
