"""A lean HTTP/1.1 client for load: callbacks instead of tasks, requests as bytes made beforehand.

About 30 µs of a core a request, so that the generator is not what is measured. Connections are kept and
used last in, first out. A connection that the server closed while it idled is replaced once, unseen.
Whatever happens, `done` is called once for each request sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import cast
from urllib.parse import urlsplit

import httptools

from loadtests.tokens import TokenTimes


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Target:
        """From `http://host:port`. Raises ValueError with what is missing."""
        parsed = urlsplit(url)
        if parsed.scheme != "http" or not parsed.hostname:
            raise ValueError(f"{url}: give it as http://host:port")
        return cls(parsed.hostname, parsed.port or 80)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def post(path: str, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A request as it goes over the wire."""
    more = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"POST {path} HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """The same without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: load\r\n\r\n".encode()


class Exchange:
    """One request and what came back; times are `time.monotonic()`, finer than a loop's clock."""

    __slots__ = (
        "_timer",
        "body",
        "done",
        "ended_at",
        "fault",
        "headers",
        "sent_at",
        "status",
        "tokens",
        "wire",
    )

    def __init__(self, wire: bytes, sent_at: float, done: Done, *, stream: bool, keep: bool = False) -> None:
        self.wire = wire
        self.done = done
        self.sent_at = sent_at
        self.ended_at = 0.0
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.tokens = TokenTimes() if stream else None
        self.body = bytearray() if keep else None
        """The answer, where it was asked for."""
        self.fault = ""
        """Why there is no whole answer: `timeout`, or what happened to the connection."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def whole(self) -> bool:
        """Whether an answer came to its end; of a stream, with its end mark and without an error event."""
        if self.fault or self.status != 200 or self.tokens is None:
            return not self.fault
        return self.tokens.done and not self.tokens.failed

    def start(self, loop: asyncio.AbstractEventLoop, timeout_s: float, expire: Callable[[], None]) -> None:
        self._timer = loop.call_later(timeout_s, expire)

    def finish(self, now: float, fault: str = "") -> None:
        """Call `done`, once."""
        if self.ended_at:
            return
        self.ended_at = now
        self.fault = fault
        if self._timer is not None:
            self._timer.cancel()
        self.done(self)


Done = Callable[[Exchange], None]


class Connection(asyncio.Protocol):
    """One connection; at most one request on it at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._used = False
        self._heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, exchange: Exchange) -> None:
        assert self._transport is not None
        self._exchange, self._heard = exchange, False
        self._transport.write(exchange.wire)

    def carries(self, exchange: Exchange) -> bool:
        """Whether this exchange is under way here."""
        return self._exchange is exchange

    def drop(self) -> None:
        """Close without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"unreadable answer: {error}")
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None or exchange.ended_at:
            return
        if self._used and not self._heard:
            self._client.dispatch(exchange)
        else:
            exchange.finish(monotonic(), f"connection closed: {error or 'by the server'}")

    # -- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchange is not None:
            self._exchange.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._exchange is not None:
            self._exchange.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.tokens is not None and exchange.status == 200:
            exchange.tokens.feed(data, monotonic())
        if exchange.body is not None:
            exchange.body += data

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return
        self._end()

    def _end(self, fault: str = "") -> None:
        exchange, self._exchange = self._exchange, None
        self._used = True
        if fault or not self._parser.should_keep_alive():
            self.drop()
        else:
            self._client.give_back(self)
        if exchange is not None:
            exchange.finish(monotonic(), fault)


class Client:
    """Connections to one server, as many as there are requests open, `limit` at most."""

    def __init__(self, target: Target, *, limit: int = 10_000) -> None:
        self.loop = asyncio.get_running_loop()
        self._target = target
        self._limit = limit
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self.open = 0
        """Requests under way."""

    def send(
        self, wire: bytes, done: Done, *, stream: bool = False, timeout_s: float = 60.0, keep: bool = False
    ) -> bool:
        """Begin a request; `done` gets its exchange. False: the limit is reached, nothing is sent."""
        if self.open >= self._limit:
            return False
        self.begin(wire, done, stream=stream, timeout_s=timeout_s, keep=keep)
        return True

    def begin(
        self, wire: bytes, done: Done, *, stream: bool = False, timeout_s: float = 60.0, keep: bool = False
    ) -> Exchange:
        """The same, whatever the limit; the exchange shows how far it is."""
        self.open += 1

        def finished(exchange: Exchange) -> None:
            self.open -= 1
            done(exchange)

        exchange = Exchange(wire, monotonic(), finished, stream=stream, keep=keep)
        exchange.start(self.loop, timeout_s, lambda: self._expire(exchange))
        self.dispatch(exchange)
        return exchange

    async def call(
        self, wire: bytes, *, stream: bool = False, timeout_s: float = 60.0, keep: bool = False
    ) -> Exchange:
        """The same, awaited. Raises RuntimeError at the limit. A cancelled caller leaves the request be."""
        answered: asyncio.Future[Exchange] = self.loop.create_future()

        def done(exchange: Exchange) -> None:
            if not answered.done():
                answered.set_result(exchange)

        if not self.send(wire, done, stream=stream, timeout_s=timeout_s, keep=keep):
            raise RuntimeError(f"{self._limit} requests are open already")
        return await answered

    def close(self) -> None:
        """Drop everything; requests under way end with a fault."""
        for task in list(self._opening):
            task.cancel()
        for connection in list(self._all):
            connection.drop()

    # -- called by Connection

    def dispatch(self, exchange: Exchange) -> None:
        if self._idle:
            self._idle.pop().send(exchange)
            return
        task = self.loop.create_task(self._connect(exchange), name="load connection")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def give_back(self, connection: Connection) -> None:
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self, exchange: Exchange) -> None:
        try:
            _, connection = await self.loop.create_connection(
                lambda: Connection(self), self._target.host, self._target.port
            )
        except OSError as error:
            exchange.finish(monotonic(), f"cannot connect: {error.strerror or error}")
            return
        except asyncio.CancelledError:
            exchange.finish(monotonic(), "closed")
            raise
        self._all.add(connection)
        if exchange.ended_at:
            self.give_back(connection)
        else:
            connection.send(exchange)

    def _expire(self, exchange: Exchange) -> None:
        exchange.finish(monotonic(), "timeout")
        for connection in self._all:
            if connection.carries(exchange):
                connection.drop()
                break
