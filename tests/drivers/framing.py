"""A strict HTTP/1.1 response parser (RFC 9112) without I/O: what real clients forgive is an error here.

`feed` takes bytes as they come and returns what they complete; `eof` tells that the peer has closed.
Errors: lengths that disagree, a length together with chunks, illegal chunk lines, folded or malformed
headers, bytes where none may be, a message cut off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) ([\t\x20-\x7e\x80-\xff]*)\Z")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z")
_CHUNK_SIZE = re.compile(rb"(?:0|[1-9a-fA-F][0-9a-fA-F]{0,15})\Z")
_LONGEST_LINE = 65_536


class FramingError(AssertionError):
    """What was received is no HTTP/1.1 response."""


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    """In their order, names as they were spelt."""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of a header that may be there once at most."""
        values = self.all(name)
        if len(values) > 1:
            raise FramingError(f"{name} is there {len(values)} times: {values}")
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Data:
    content: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The response is whole."""

    keep_alive: bool


Part = Head | Data | End


@dataclass(slots=True)
class ResponseParser:
    """Parses the response to one request, after any number of informational ones."""

    method: str = "POST"
    ended: bool = False
    _buffer: bytearray = field(default_factory=bytearray)
    _head: Head | None = None
    _left: int | None = None
    """Bytes still to come, of the body or of the present chunk."""
    _chunked: bool = False
    _until_close: bool = False
    _after_chunk: bool = False
    _last_chunk: bool = False

    def feed(self, data: bytes) -> list[Part]:
        """What the bytes complete. Raises FramingError; bytes after the end are such an error."""
        self._buffer += data
        parts: list[Part] = []
        while (part := self._next()) is not None:
            parts.append(part)
        if self.ended and self._buffer:
            raise FramingError(f"bytes after the end of the response: {bytes(self._buffer[:80])!r}")
        return parts

    def eof(self) -> list[Part]:
        """The peer has closed. Raises FramingError unless the response is whole or ends so."""
        if self.ended:
            return []
        if self._until_close:
            self.ended = True
            return [End(keep_alive=False)]
        where = "in the head" if self._head is None else "in the body"
        raise FramingError(f"closed {where}; unparsed: {bytes(self._buffer[:80])!r}, missing: {self._left}")

    def _next(self) -> Part | None:
        if self.ended:
            return None
        if self._head is None:
            return self._read_head()
        if self._until_close:
            return self._take(len(self._buffer))
        if self._chunked:
            return self._read_chunk()
        if self._left == 0:
            return self._end()
        return self._take(min(len(self._buffer), self._left or 0))

    def _take(self, size: int) -> Data | None:
        if not size:
            return None
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        if self._left is not None:
            self._left -= size
        return Data(content)

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _LONGEST_LINE:
                raise FramingError(f"a line longer than {_LONGEST_LINE} bytes: {bytes(self._buffer[:80])!r}")
            return None
        if end == 0 or self._buffer[end - 1 : end] != b"\r":
            raise FramingError(f"a line that does not end in CR LF: {bytes(self._buffer[: end + 1])!r}")
        line = bytes(self._buffer[: end - 1])
        del self._buffer[: end + 1]
        return line

    def _read_head(self) -> Head | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _LONGEST_LINE:
                raise FramingError(f"a head longer than {_LONGEST_LINE} bytes")
            if self._buffer and not b"HTTP/1.1".startswith(self._buffer[:8]):
                raise FramingError(f"no status line: {bytes(self._buffer[:80])!r}")
            return None
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        status = _STATUS_LINE.match(lines[0])
        if status is None:
            raise FramingError(f"no status line: {lines[0]!r}")
        headers = []
        for line in lines[1:]:
            match = _HEADER.match(line)
            if match is None:
                raise FramingError(f"no header line: {line!r}")
            headers.append((match[1].decode("latin-1"), match[2].decode("latin-1")))
        head = Head(int(status[1]), status[2].decode("latin-1"), tuple(headers))
        if 100 <= head.status < 200:
            if head.header("content-length") or head.header("transfer-encoding"):
                raise FramingError(f"an informational response with a body: {head}")
            return head
        self._head = head
        self._read_length(head)
        return head

    def _read_length(self, head: Head) -> None:
        length = head.header("content-length")
        coding = head.header("transfer-encoding")
        if length is not None and coding is not None:
            raise FramingError("both Content-Length and Transfer-Encoding")
        if length is not None and not re.fullmatch(r"0|[1-9][0-9]*", length):
            raise FramingError(f"Content-Length: {length!r}")
        if coding is not None and coding.lower() != "chunked":
            raise FramingError(f"Transfer-Encoding: {coding!r}")
        if head.status in (204, 304) and (coding is not None or (length is not None and head.status == 204)):
            raise FramingError(f"a {head.status} with a length")
        if self.method == "HEAD" or head.status in (204, 304):
            self._left = 0
        elif coding is not None:
            self._chunked = True
        elif length is not None:
            self._left = int(length)
        else:
            self._until_close = True

    def _read_chunk(self) -> Part | None:
        if self._left:
            data = self._take(min(len(self._buffer), self._left))
            if self._left == 0:
                self._left, self._after_chunk = None, True
            return data
        if self._after_chunk:
            if len(self._buffer) < 2:
                return None
            if self._buffer[:2] != b"\r\n":
                raise FramingError(f"no CR LF after a chunk: {bytes(self._buffer[:20])!r}")
            del self._buffer[:2]
            self._after_chunk = False
        line = self._line()
        if line is None:
            return None
        if self._last_chunk:
            if line:
                raise FramingError(f"a trailer: {line!r}")
            return self._end()
        if not _CHUNK_SIZE.match(line):
            raise FramingError(f"no chunk size: {line!r}")
        if int(line, 16) == 0:
            self._last_chunk = True
        else:
            self._left = int(line, 16)
        return self._read_chunk()

    def _end(self) -> End:
        self.ended = True
        assert self._head is not None
        connection = (self._head.header("connection") or "").lower()
        return End(keep_alive="close" not in connection)
