"""How an answer's bytes are laid on the wire: event syntax, chunk framing, cuts. Pure generators.

In order: events are worded (`EventWriter`), cut short (`ended_early`), compressed, framed and cut into
writes (`writes`). A write is what one call of the transport's `write` gets.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from backends.fake.behaviour import Answer, Cut, LineEnd, Pieces, Point

LAST_CHUNK = b"0\r\n\r\n"
_LINE_ENDS = {LineEnd.LF: b"\n", LineEnd.CRLF: b"\r\n", LineEnd.CR: b"\r"}
_BLOCK_BYTES = 65_536


class EventWriter:
    """Words the events of one stream."""

    def __init__(self, answer: Answer) -> None:
        self._end = _LINE_ENDS[answer.line_end]
        self._field = b"data: " if answer.space_after_colon else b"data:"
        self._comment_every = answer.comment_every
        self._written = 0

    def keep_alive(self) -> bytes:
        """vLLM's `SSE_KEEP_ALIVE_COMMENT`."""
        return b": keep-alive" + self._end + self._end

    def event(self, data: bytes) -> bytes:
        """One event, with the comment line in front where its turn has come. `data` holds no line end."""
        comment = b""
        if self._comment_every and self._written % self._comment_every == 0:
            comment = b": fake" + self._end + self._end
        self._written += 1
        return comment + self._field + data + self._end + self._end

    def named_event(self, name: bytes, data: bytes) -> bytes:
        return b"event: " + name + self._end + self.event(data)


class Shortener:
    """Lets the parts of a body pass up to the point of its cut."""

    def __init__(self, cut: Cut | None) -> None:
        self._left: int | None = None
        self._bytes = False
        if cut is not None and cut.after in (Point.CHUNKS, Point.BYTES):
            self._left = cut.count
            self._bytes = cut.after is Point.BYTES
        elif cut is not None:
            self._left = 0

    @property
    def reached(self) -> bool:
        """Whether the point of the cut is here."""
        return self._left is not None and self._left <= 0

    def passed(self, part: bytes) -> bytes:
        """What of the part still passes."""
        if self._left is None:
            return part
        if self._bytes:
            part = part[: max(self._left, 0)]
            self._left -= len(part)
            return part
        if self._left <= 0:
            return b""
        self._left -= 1
        return part


class Compressor:
    """Gzip, flushed after each part so that events are seen when they happen."""

    def __init__(self) -> None:
        self._state = zlib.compressobj(wbits=31)

    def part(self, data: bytes) -> bytes:
        return self._state.compress(data) + self._state.flush(zlib.Z_SYNC_FLUSH)

    def rest(self) -> bytes:
        return self._state.flush()


class Slicer:
    """Cuts what is written as the answer's `write_size` or `split_at` say, and frames it in chunks."""

    def __init__(self, answer: Answer, chunked: bool) -> None:
        self._size = answer.write_size
        self._split_at = answer.split_at
        self._wire = answer.pieces is Pieces.WIRE
        self._chunked = chunked
        self._offset = 0

    def writes(self, part: bytes) -> Iterator[bytes]:
        """The writes for one part of the body."""
        if self._wire or not self._chunked:
            yield from self._sliced(chunk(part) if self._chunked else part)
            return
        for piece in self._sliced(part):
            yield chunk(piece)

    def last(self) -> Iterator[bytes]:
        """The writes that end the body."""
        if self._chunked:
            yield from self._sliced(LAST_CHUNK) if self._wire else (LAST_CHUNK,)

    def _sliced(self, data: bytes) -> Iterator[bytes]:
        start = self._offset
        self._offset += len(data)
        if self._size:
            for at in range(0, len(data), self._size):
                yield data[at : at + self._size]
        elif self._split_at is not None and 0 < self._split_at - start < len(data):
            yield data[: self._split_at - start]
            yield data[self._split_at - start :]
        elif data:
            yield data


def chunk(data: bytes) -> bytes:
    """An HTTP/1.1 chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def blocks(size: int) -> Iterator[bytes]:
    """A body of `size` letters, in blocks."""
    whole, rest = divmod(size, _BLOCK_BYTES)
    block = b"x" * _BLOCK_BYTES
    for _ in range(whole):
        yield block
    if rest:
        yield block[:rest]


def head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """A status line and headers. HTTP/1.1 whatever the caller speaks, as uvicorn answers."""
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Fake')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


_PHRASES = {
    100: "Continue",
    102: "Processing",
    103: "Early Hints",
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
