"""The listening side: uvicorn's HTTP protocol with the hot routes answered inside it.

A hot request never becomes an ASGI task: it is recognised when its head is complete, handed to
`Edge.handle` when its body is, and answered through its Exchange. Everything else falls through to
uvicorn and FastAPI untouched. Bodies are bounded while they arrive; a refusal that comes before the
whole body closes gently, so that the client still reads it. Idle and slow connections are closed by
`Edge.sweep`, which costs nothing per request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.errors import (
    BadRequest,
    GatewayError,
    Internal,
    OverCapacity,
    PayloadTooLarge,
)
from gateway.http import heads
from gateway.http.edge import Edge
from gateway.http.exchange import Exchange
from gateway.http.heads import MAX_BYTES, MAX_LINES, Known

logger = logging.getLogger(__name__)

MAX_BEHIND = 8
"""Requests read ahead on a connection while the one before them is answered."""

LINGER_S = 2.0
"""How long a refused body is read and thrown away, so that the refusal arrives."""

MAX_READ = 256 * 1024
"""The most that the event loop hands over at a time."""


_NOTED = frozenset((b"content-length", b"expect", b"connection"))


class EdgeProtocol(HttpToolsProtocol):
    """One client's connection."""

    edge: Edge
    cycle: Any
    """The latest request: an Exchange if it is hot, else uvicorn's own cycle; None before the first."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.current: Exchange | None = None
        self.idle_since = time.monotonic()
        self.reading_since = 0.0
        self.linger_until = 0.0
        self._held = 0
        self._in_head = False
        self._head_bytes = 0
        """Of the reads that the head has taken so far, but for the present one."""
        self._read_bytes = 0
        self._announced = 0
        """Length of the body, as the request's head says; 0: it does not."""
        self._usual = True
        """Whether the request's head says nothing about the connection."""
        self._offered = False
        """The request whose head is complete offers another protocol: `_decline` begins it anew."""

    # Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.edge.connections.add(self)
        if len(self.edge.connections) > self.edge.max_connections:
            error = OverCapacity("Too many open connections at this gateway.", retry_after_s=5)
            self._refuse_connection(error)

    def connection_lost(self, exc: Exception | None) -> None:
        edge = self.edge
        edge.connections.discard(self)
        edge.buffered -= self._held
        self._held = 0
        if self.current is not None:
            self.current.leave()
        latest = self.cycle
        if type(latest) is Exchange:
            latest.leave()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.linger_until:
            return
        # Between two requests, with nothing to be answered.
        idle = self.idle_since and not self.reading_since
        if idle:
            end = data.find(b"\r\n\r\n") + 4
            known = self.edge.known.get(data[:end])
            if known is not None and known.length == len(data) - end:
                self._take(known, data[end:])
                return
        self._read_bytes = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_connection(_reason(error))
        else:
            if self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > heads.MAX_BYTES and self._head_is_too_large():
                    self._refuse_connection(heads.too_large())
            elif idle:
                self._learn(data)

    def _take(self, known: Known, body: bytes) -> None:
        """A whole request, whose head came before: here or on another connection."""
        exchange = Exchange(self, known.route, known.headers, known.query, known.asked, body, known.length)
        self.cycle = self.current = exchange
        self.idle_since = 0.0
        if self._hold(exchange, known.length):
            self.edge.handle(exchange)

    def _learn(self, data: bytes) -> None:
        """These bytes came between two requests, and made sense."""
        latest = self.cycle
        if type(latest) is not Exchange or latest.asked is None:
            return
        if latest.keep_alive and not (latest.old_http or self.expect_100_continue):
            known = Known(latest.route, latest.headers, latest.query, latest.asked, latest.size)
            self.edge.known.learn(data, known)

    def _decline(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 behind the head of a request that offers another protocol (h2c, websocket)."""
        offers = True
        while offers:
            offers = False
            parser = self.parser
            head = heads.without_offer(parser.get_method(), self.url, parser.get_http_version(), self.headers)
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self.parser.feed_data(head + rest)
            except httptools.HttpParserUpgrade as offer:
                # The next request in the same read does so, too.
                offers = True
                rest = (head + rest)[offer.args[0] :]
            except httptools.HttpParserError as error:
                self._refuse_connection(_reason(error))

    def eof_received(self) -> None:
        """A client that closes its sending side has left: nothing tells a half-close from a close."""

    def sweep(self, now: float) -> None:
        edge = self.edge
        if self.transport.is_closing():
            return
        if self.linger_until:
            if now > self.linger_until:
                self.transport.abort()
        elif self.reading_since:
            # While an answer is under way nothing more is read, so its client is not slow.
            if now - self.reading_since > edge.header_timeout_s and not self._held_up:
                self.transport.abort()
        elif self.idle_since and now - self.idle_since > edge.keep_alive_s:
            self.transport.close()

    @property
    def _held_up(self) -> bool:
        """Whether the request that is being received waits for the answer to one before it."""
        latest = self.cycle
        return bool(self.pipeline) or (self._in_head and latest is not None and not latest.response_complete)

    def _refuse_connection(self, error: GatewayError) -> None:
        if self.linger_until or self.transport.is_closing():
            return
        latest = self.cycle
        if type(latest) is Exchange and latest is self.current and not latest.received:
            self._refuse_early(latest, error)
            return
        if latest is not None and not latest.response_complete:
            # An answer is under way: bytes of another in between would be taken for a part of it.
            if latest.keep_alive:
                self.transport.abort()
            return
        body = error.body()
        lines = b"".join(b"%b: %b\r\n" % header for header in error.headers())
        self.transport.write(
            b"%b%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (STATUS_LINE[error.status], self.edge.date_block, lines, len(body), body)
        )
        self._linger()

    def _linger(self) -> None:
        """Close once the client has had the chance to read what was written."""
        self.linger_until = time.monotonic() + LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    # llhttp callbacks

    def on_message_begin(self) -> None:
        if self.linger_until or self.transport.is_closing():
            raise BadRequest("Nothing more is read from this connection.")
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.idle_since = 0.0
        self.reading_since = time.monotonic()
        self._announced = 0
        self._usual = True
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers.append((name, value))
        if name in _NOTED:
            self._note(name, value)

    def _note(self, name: bytes, value: bytes) -> None:
        """A header that says how the connection goes on."""
        if name == b"content-length":
            self._announced = int(value)
        elif name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif name == b"connection":
            self._usual = False

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise BadRequest("This gateway is no proxy for connections.")
            self._offered = True
            return
        route = self.edge.routes.get(self.url)
        query = b""
        if route is None:
            if not self.url.startswith(b"/"):
                self.url = heads.origin_form(self.url)
            path, _, query = self.url.partition(b"?")
            route = self.edge.routes.get(path)
        if len(self.headers) > MAX_LINES:
            raise heads.too_large()
        if self._head_bytes + self._read_bytes > MAX_BYTES and self._head_is_too_large():
            raise heads.too_large()
        if route is None or self.parser.get_method() != b"POST":
            self._begin_cold()
            return
        keep_alive = self.parser.should_keep_alive()
        # HTTP/1.0 either closes or says `Connection: keep-alive`.
        old_http = not (keep_alive and self._usual) and self.parser.get_http_version() == "1.0"
        exchange = Exchange(self, route, self.headers, query)
        exchange.old_http = old_http
        exchange.keep_alive = keep_alive
        exchange.received = False
        previous = self.cycle
        self.cycle = exchange
        if previous is None or previous.response_complete:
            self.current = exchange
        else:
            self.pipeline.appendleft((self.cycle, self.app))
            # Read on up to a point: of a connection that is not read nobody hears that its client has left.
            if len(self.pipeline) >= MAX_BEHIND:
                self.flow.pause_reading()
        self._check_announced(exchange)

    def _head_is_too_large(self) -> bool:
        # What was read may have begun with another request; a line that goes on and on is in no header yet.
        endless = self._head_bytes > heads.MAX_BYTES + MAX_READ
        return endless or heads.size(self.url, self.headers) > heads.MAX_BYTES

    def _begin_cold(self) -> None:
        """Let uvicorn have the request: its own bookkeeping, built now rather than for every request."""
        if not self.url.isascii():
            raise BadRequest("The request's path holds bytes that must be percent-encoded.")
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url = url
        self.headers.extend(headers)
        self.expect_100_continue = expects
        if self.cycle is None or self.cycle.response_complete:
            self.current = None
        super().on_headers_complete()

    def _check_announced(self, exchange: Exchange) -> None:
        if self._announced > self.edge.max_body_bytes:
            self._refuse_body(exchange)
        elif self.expect_100_continue and self.current is exchange:
            self._invite(exchange)

    def _invite(self, exchange: Exchange) -> None:
        """Ask for the body, if its client waits for that."""
        if self.expect_100_continue and not exchange.old_http:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        exchange = self.cycle
        if type(exchange) is not Exchange:
            super().on_body(body)
            return
        if exchange.response_complete or exchange.disconnected:
            return
        exchange.feed(body)
        if exchange.size > self.edge.max_body_bytes:
            self._refuse_body(exchange)
        else:
            self._hold(exchange, len(body))

    def _hold(self, exchange: Exchange, size: int) -> bool:
        """So many more bytes of its body are held. False if they are too many, and it is refused."""
        edge = self.edge
        edge.buffered += size
        self._held += size
        if edge.buffered <= edge.max_buffered_bytes:
            return True
        error = OverCapacity("This gateway holds too many request bodies.", retry_after_s=1)
        self._refuse_early(exchange, error)
        return False

    def _refuse_body(self, exchange: Exchange) -> None:
        limit = self.edge.max_body_bytes
        self._refuse_early(
            exchange, PayloadTooLarge(f"The request body is larger than the limit of {limit} bytes.")
        )

    def _refuse_early(self, exchange: Exchange, error: GatewayError) -> None:
        """Answer a request that has not been received whole, and its connection with it."""
        exchange.keep_alive = False
        exchange.drop_body()
        if self.current is exchange:
            self.edge.early(exchange, error)
        else:
            self.transport.abort()

    def on_message_complete(self) -> None:
        if self._offered:
            self._offered = False
            return
        self.reading_since = 0.0
        exchange = self.cycle
        if type(exchange) is not Exchange:
            super().on_message_complete()
            return
        if exchange.response_complete or exchange.disconnected:
            return
        exchange.finish_body()
        if self.current is exchange:
            self.edge.handle(exchange)

    # Answers

    def answered(self, exchange: Exchange) -> None:
        """An exchange has written its last byte."""
        self.edge.buffered -= self._held
        self._held = 0
        if exchange.received and exchange.keep_alive:
            self.on_response_complete()
        elif self.transport.is_closing():
            pass
        elif not exchange.received:
            self._linger()
        else:
            self.transport.close()

    def cut(self) -> None:
        """Close without finishing the answer; what was written still goes out, its end does not."""
        self.edge.buffered -= self._held
        self._held = 0
        self.transport.close()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            # Not called from here: a hundred pipelined requests would nest a hundred deep.
            self.loop.call_soon(self._start_next, cycle, app)
        else:
            self.idle_since = time.monotonic()
            if self.reading_since:
                self.reading_since = self.idle_since
            if self.flow.read_paused:
                self.flow.resume_reading()

    def _start_next(self, cycle: Any, app: Any) -> None:
        if self.transport.is_closing():
            return
        if self.reading_since:
            self.reading_since = time.monotonic()
        if type(cycle) is not Exchange:
            self.current = None
            self._start_asgi_task(cycle, app)
            return
        self.current = cycle
        if cycle.received:
            self.edge.handle(cycle)
        else:
            self._invite(cycle)
            self.flow.resume_reading()

    # Flow control

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        if self.current is not None:
            self.current.on_drained()


def _reason(error: httptools.HttpParserError) -> GatewayError:
    """What to say about a request that could not be read."""
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
    if isinstance(cause, GatewayError):
        return cause
    if cause is None:
        return BadRequest("The request is not valid HTTP/1.1.")
    logger.error("Reading a request failed", exc_info=cause)
    return Internal("The gateway failed; its log says how.")


def bound_to(edge: Edge) -> type[EdgeProtocol]:
    """The protocol class for uvicorn's `http` setting."""
    return cast("type[EdgeProtocol]", type("BoundEdgeProtocol", (EdgeProtocol,), {"edge": edge}))
