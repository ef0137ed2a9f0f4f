"""The strict response parser: what is right passes whatever the cuts, what is wrong does not."""

from __future__ import annotations

import pytest

from tests.drivers.framing import Data, End, FramingError, Head, Part, ResponseParser

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + LENGTH


def _content(parts: list[Part]) -> bytes:
    return b"".join(part.content for part in parts if isinstance(part, Data))


@pytest.mark.parametrize("response", [LENGTH, CHUNKED, INTERIM])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_response_is_read_whatever_its_cuts(response: bytes, size: int) -> None:
    parser = ResponseParser()
    parts: list[Part] = []
    for at in range(0, len(response), size):
        parts += parser.feed(response[at : at + size])
    assert _content(parts) == b"hello"
    assert parts[-1] == End(keep_alive=True)
    assert parser.ended


def test_a_response_without_length_ends_with_the_connection() -> None:
    parser = ResponseParser()
    assert _content(parser.feed(b"HTTP/1.1 200 OK\r\n\r\nhello")) == b"hello"
    assert parser.eof() == [End(keep_alive=False)]


def test_a_response_to_head_has_no_body() -> None:
    parts = ResponseParser("HEAD").feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    assert [type(part) for part in parts] == [Head, End]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(LENGTH + b"x", id="more bytes than its length"),
        pytest.param(CHUNKED + b"x", id="bytes after the last chunk"),
        pytest.param(CHUNKED.replace(b"3\r\n", b"4\r\n"), id="a chunk longer than said"),
        pytest.param(CHUNKED.replace(b"3\r\n", b"0x3\r\n"), id="a chunk size that is no hexadecimal number"),
        pytest.param(CHUNKED.replace(b"3\r\n", b"3\n"), id="a chunk size without CR"),
        pytest.param(CHUNKED.replace(b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n"), id="a trailer"),
        pytest.param(LENGTH.replace(b"5", b"+5"), id="a signed length"),
        pytest.param(LENGTH.replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n"), id="two lengths"),
        pytest.param(
            CHUNKED.replace(b"\r\n\r\n3", b"\r\ncontent-length: 5\r\n\r\n3"),
            id="a length together with chunks",
        ),
        pytest.param(LENGTH.replace(b"content-length", b"content-length "), id="a blank before the colon"),
        pytest.param(
            LENGTH.replace(b"content-length", b"x: y\r\n z: w\r\ncontent-length"), id="a folded header"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n", id="another version"),
        pytest.param(b"garbage", id="no status line"),
        pytest.param(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", id="a 204 with a length"),
    ],
)
def test_illegal_framing_is_an_error(wrong: bytes) -> None:
    with pytest.raises(FramingError):
        ResponseParser().feed(wrong)


@pytest.mark.parametrize("cut", [0, 10, len(LENGTH) - 1])
def test_a_response_that_is_cut_off_is_an_error(cut: int) -> None:
    parser = ResponseParser()
    parser.feed(LENGTH[:cut])
    with pytest.raises(FramingError, match="closed in the"):
        parser.eof()
