"""One request on a client's connection and its answer, as the flow sees them.

It owns framing towards the client: one answer for each request, a length or chunks, an end or a cut.
After the first byte the status never changes. When the client leaves, `on_gone` is called once and
every later write is dropped. uvicorn's protocol treats it as one of its request cycles, which is why
some attributes carry uvicorn's names (`response_complete`, `disconnected`, `message_event`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.errors import GatewayError
from gateway.upstream.headers import Asked, Headers, end_of_head

if TYPE_CHECKING:
    from gateway.http.protocol import EdgeProtocol
    from gateway.http.routes import HotRoute

CHUNK_JOIN_BELOW = 64 * 1024
"""A chunk's size line and data travel in one write up to this size."""

JSON = b"content-type: application/json\r\n"

BODILESS = frozenset((204, 304))
"""Answers that end with their head, and say no length (RFC 9110, 8.6)."""


class _NobodyWaits:
    """uvicorn sets an event when a cycle's client leaves; hot exchanges use a callback instead."""

    def set(self) -> None:
        pass


_NOBODY_WAITS = _NobodyWaits()


def _nothing() -> None:
    pass


class Exchange(msgspec.Struct, eq=False):
    """Request: `route`, `headers` (lower-case names), `body`. Answer: `reply`, or `begin`, `write`, `end`."""

    _protocol: EdgeProtocol
    route: HotRoute
    headers: Headers
    query: bytes = b""
    asked: Asked | None = None
    """What the headers ask, once they have been read."""
    body: bytes = b""
    _size: int = 0
    received: bool = True
    """Whether the body is whole."""
    old_http: bool = False
    keep_alive: bool = True
    request_id: bytes = b""
    status: int = 0
    started: bool = False
    response_complete: bool = False
    disconnected: bool = False
    _parts: list[bytes] | None = None
    _chunked: bool = False
    message_event: _NobodyWaits = _NOBODY_WAITS
    on_gone: Callable[[], None] = _nothing
    on_drained: Callable[[], None] = _nothing

    def __repr__(self) -> str:
        state = "complete" if self.response_complete else "started" if self.started else "open"
        return f"<Exchange {self.route.name} {state} gone={self.disconnected}>"

    @property
    def client(self) -> str:
        """The peer's address, for logs."""
        peer = self._protocol.client
        return f"{peer[0]}:{peer[1]}" if peer else "unix"

    # The request's body

    @property
    def size(self) -> int:
        """Bytes of the body received so far."""
        return self._size

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if not self.body and self._parts is None:
            self.body = data
        elif self._parts is None:
            self._parts = [self.body, data]
        else:
            self._parts.append(data)

    def finish_body(self) -> None:
        if self._parts is not None:
            self.body = b"".join(self._parts)
            self._parts = None
        self.received = True

    def drop_body(self) -> None:
        """Forget the body: it is refused, or sent on."""
        self.body = b""
        self._parts = None

    # The answer

    @property
    def open(self) -> bool:
        """Whether anything may still be written."""
        return not (self.response_complete or self.disconnected)

    @property
    def congested(self) -> bool:
        """Whether the client reads more slowly than we write. `on_drained` is called when that is over."""
        return self._protocol.flow.write_paused

    def reply(self, status: int, block: bytes, body: bytes) -> None:
        """The whole answer at once. `block` holds header lines, each ending in CRLF."""
        if self.started or self.response_complete or self.disconnected:
            return
        self.started = True
        self.status = status
        if status in BODILESS:
            body = b""
            framing = b"\r\n"
        else:
            framing = end_of_head(len(body))
        head = self._head(status, block) + framing
        if len(body) < CHUNK_JOIN_BELOW:
            self._protocol.transport.write(head + body)
        else:
            self._protocol.transport.writelines((head, body))
        self._complete()

    def fail(self, error: GatewayError, block: bytes = b"") -> None:
        """Answer with an error, if nothing has been sent yet.

        `block`: the gateway's own lines, the request's id among them. Without them the id is said here.
        """
        lines = b"".join(b"%b: %b\r\n" % header for header in error.headers())
        if self.request_id and not block:
            lines += b"x-request-id: %b\r\n" % self.request_id
        self.reply(error.status, JSON + lines + block, error.body())

    def begin(self, status: int, block: bytes, length: int | None) -> None:
        """Start an answer of a known length, or of an unknown one (chunks; HTTP/1.0: until close)."""
        if self.started or not self.open:
            return
        self.started = True
        self.status = status
        if status in BODILESS:
            framing = b"\r\n"
        elif length is not None:
            framing = end_of_head(length)
        elif self.old_http:
            self.keep_alive = False
            framing = b"\r\n"
        else:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n\r\n"
        self._protocol.transport.write(self._head(status, block) + framing)

    def write(self, data: bytes) -> None:
        """Some of the body. Check `congested` afterwards and stop the source while it holds."""
        if not data or not self.open:
            return
        if not self._chunked:
            self._protocol.transport.write(data)
        elif len(data) < CHUNK_JOIN_BELOW:
            self._protocol.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._protocol.transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))

    def end(self) -> None:
        """The body is whole."""
        if not self.open:
            return
        if self._chunked:
            self._protocol.transport.write(b"0\r\n\r\n")
        self._complete()

    def cut(self) -> None:
        """The body cannot be finished: close the connection so that the client notices."""
        if not self.open:
            return
        self.response_complete = True
        self.keep_alive = False
        self._protocol.cut()

    # Called by the protocol

    def leave(self) -> None:
        """The client has gone."""
        if self.disconnected:
            return
        self.disconnected = True
        self.drop_body()
        if not self.response_complete:
            self.on_gone()

    def _head(self, status: int, block: bytes) -> bytes:
        edge = self._protocol.edge
        head = STATUS_LINE[status] + edge.date_block + block
        if edge.leaving:
            self.keep_alive = False
        if not self.keep_alive:
            head += b"connection: close\r\n"
        elif self.old_http:
            head += b"connection: keep-alive\r\n"
        return head + edge.cors_block(self.headers) if edge.cors_origins else head

    def _complete(self) -> None:
        self.response_complete = True
        self.on_gone = _nothing
        self.on_drained = _nothing
        self._protocol.answered(self)
