"""Exact bytes out, exact bytes in: one connection, and the strictly parsed response with what came raw."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.drivers.framing import Data, End, FramingError, Head, ResponseParser

RESPONSE_LIMIT_S = 30.0
"""A response that takes longer is a hang."""


@dataclass(frozen=True, slots=True)
class Response:
    head: Head
    body: bytes
    interim: tuple[Head, ...]
    keep_alive: bool
    raw: bytes
    """Every byte that was received."""

    @property
    def status(self) -> int:
        return self.head.status

    def header(self, name: str) -> str | None:
        return self.head.header(name)

    @property
    def decoded(self) -> bytes:
        """The body without its content encoding."""
        return gzip.decompress(self.body) if self.header("content-encoding") == "gzip" else self.body

    def json(self) -> Any:
        return msgspec.json.decode(self.decoded)


class Peer:
    """A connection to a server, down to its bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = bytearray()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, limit: int = 65_536) -> bytes:
        """What has come, `limit` bytes at most; empty at the end. Raises ConnectionResetError."""
        async with asyncio.timeout(RESPONSE_LIMIT_S):
            data = await self.reader.read(limit)
        self.received += data
        return data

    async def response(self, method: str = "POST") -> Response:
        """The next response. Raises FramingError, ConnectionResetError, TimeoutError."""
        parser = ResponseParser(method)
        first = len(self.received)
        interim: list[Head] = []
        head: Head | None = None
        body = bytearray()
        while True:
            data = await self.receive()
            for part in parser.feed(data) if data else parser.eof():
                match part:
                    case Head() if part.status < 200:
                        interim.append(part)
                    case Head():
                        head = part
                    case Data():
                        body += part.content
                    case End():
                        assert head is not None
                        raw = bytes(self.received[first:])
                        return Response(head, bytes(body), tuple(interim), part.keep_alive, raw)

    async def ends(self) -> None:
        """Return when the peer has closed. Raises FramingError if it sends anything first."""
        if data := await self.receive():
            raise FramingError(f"bytes where the connection should end: {data[:80]!r}")

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def connected(url: str, receive_buffer: int | None = None) -> AsyncIterator[Peer]:
    """A connection to `http://host:port` or `unix:/path`, closed at the end of the block.

    `receive_buffer`: bytes that the kernel and the reader hold for a client that does not read.
    """
    limit = receive_buffer or 2**16
    if url.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix:"), limit=limit)
    else:
        parts = urlsplit(url)
        sock = socket.socket(socket.AF_INET)
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(
                sock, (parts.hostname or "127.0.0.1", parts.port or 80)
            )
        except BaseException:
            sock.close()
            raise
        reader, writer = await asyncio.open_connection(sock=sock, limit=limit)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass  # it was reset, which some tests want


def request(
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    method: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    length: int | None = None,
) -> bytes:
    """The bytes of a request; a dict is sent as JSON. `length` is said in place of the true one."""
    content = msgspec.json.encode(body) if isinstance(body, dict) else body
    lines = [f"{method or ('GET' if content is None else 'POST')} {path} HTTP/1.1", "host: test"]
    if isinstance(body, dict):
        lines.append("content-type: application/json")
    if content is not None:
        lines.append(f"content-length: {len(content) if length is None else length}")
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (content or b"")


def chunked_request(path: str, pieces: Iterable[bytes], headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A POST of JSON without a length."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: test",
        "content-type: application/json",
        "transfer-encoding: chunked",
    ]
    lines += [f"{name}: {value}" for name, value in headers]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


async def ask(
    url: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    method: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Response:
    """One request on a connection of its own."""
    async with connected(url) as peer:
        await peer.send(request(path, body, method=method, headers=headers))
        return await peer.response(method or ("GET" if body is None else "POST"))
