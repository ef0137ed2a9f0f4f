"""One connection to the fake: HTTP/1.1 requests in, answers out, one at a time.

An `asyncio.Protocol` over httptools. A request that needs no time is answered in the callback in which it
became whole; any other is an `Exchange`, a task that the connection owns and cancels when the client goes
away. That moment is recorded in `connection_lost`, within a turn of the loop.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from backends.fake.behaviour import WORK_PATHS, Answer
from backends.fake.cutting import head
from backends.fake.exchange import Exchange
from backends.fake.record import Request

if TYPE_CHECKING:
    from backends.fake.server import Fake

MOST_PIPELINED = 64
"""Requests that may wait on one connection; with more it is closed."""
_LINGER_ZERO = struct.pack("ii", 1, 0)
_RESET_GRACE_S = 0.005
"""Time in which bytes already written reach the peer before a reset would throw them away."""


class Connection(asyncio.Protocol):
    def __init__(self, fake: Fake, for_driver: bool) -> None:
        self._fake = fake
        self._stage = fake.stage
        self._for_driver = for_driver
        self._loop = fake.loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._started_s = 0.0
        self._early = False
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._pending: deque[tuple[Request, bool]] = deque()
        self._writable: asyncio.Future[None] | None = None
        self._resting_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._retires = False
        self._ours = False
        """Whether it is this side that ends the connection."""

    # -- the transport

    def connection_made(self, given: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, given)  # uvloop's are of no such class
        transport.set_write_buffer_limits(high=0)  # drained: all is with the kernel
        self._transport = transport
        self._number = self._fake.joined(self)
        # Not at once: uvloop begins to read only after this call, whatever is said within it.
        self._loop.call_soon(self.heed)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._bad_request()
        except httptools.HttpParserError:
            if not self._ours:
                self._bad_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._exchange is not None and not self._ours:
            self._fake.stats.left(self._exchange.request, not self._exchange.answered)
        if self._task is not None:
            self._task.cancel()
        self._pending.clear()
        self._fake.parted(self)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # -- the parser

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = []
        self._body = []
        self._early = False
        self._resting_since = None
        self._started_s = time.monotonic()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._stage.answers_early and self._exchange is None and not self._pending:
            request = self._request()
            answer = self._stage.choose_early(request.path)
            if answer is not None:
                self._early = True
                self._stage.note_request(request)
                self._start(request, answer, self._parser.should_keep_alive())
                return
        for name, value in self._headers:
            if len(name) == 6 and name.lower() == b"expect" and value.lower() == b"100-continue":
                self.write(head(100, ()))

    def on_body(self, body: bytes) -> None:
        if not self._early:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._early:
            return
        keep_alive = self._parser.should_keep_alive()
        request = self._request()
        if self._exchange is not None or self._pending:
            self._pending.append((request, keep_alive))
            if len(self._pending) > MOST_PIPELINED:
                self.close()
            return
        self._begin(request, keep_alive)

    # -- Wire

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    @property
    def congested(self) -> bool:
        return self._writable is not None

    async def drained(self) -> None:
        if self._writable is not None:
            await self._writable

    async def reset(self) -> None:
        await self.drained()
        if self._exchange is not None and self._exchange.answered:
            await asyncio.sleep(_RESET_GRACE_S)
        self.kill()

    def close(self) -> None:
        self._ours = True
        if self._transport is not None:
            self._transport.close()

    # -- Fake

    def kill(self) -> None:
        """Reset the connection now."""
        self._ours = True
        transport = self._transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()

    def heed(self) -> None:
        """Read, or stop reading, as the fake now wants it."""
        transport = self._transport
        if transport is None or self._for_driver or transport.is_closing():
            return
        if self._fake.hears and not transport.is_reading():
            transport.resume_reading()
        elif not self._fake.hears and transport.is_reading():
            transport.pause_reading()

    def retire(self) -> None:
        """Close when nothing is under way."""
        self._retires = True
        if self._exchange is None:
            self.close()

    @property
    def is_working(self) -> bool:
        """Whether a request is being answered."""
        return self._exchange is not None

    def abort_generation(self) -> None:
        if self._exchange is not None:
            self._exchange.abort()

    # -- requests

    def _request(self) -> Request:
        path, _, query = self._target.partition(b"?")
        return Request(
            self._parser.get_method().decode("latin-1"),
            path.decode("latin-1"),
            query.decode("latin-1"),
            self._headers,
            self._body[0] if len(self._body) == 1 else b"".join(self._body),
            self._number,
            self._started_s,
        )

    def _begin(self, request: Request, keep_alive: bool) -> None:
        stage = self._stage
        stage.note_request(request)
        answer = stage.choose(request)
        whole = stage.at_once(request, answer)
        if whole is not None:
            self.write(whole)
            if keep_alive:
                self._rest()
            else:
                self.close()
            return
        self._start(request, answer, keep_alive)

    def _start(self, request: Request, answer: Answer, keep_alive: bool) -> None:
        self._exchange = Exchange(request, answer, self, self._stage, keep_alive)
        if request.path in WORK_PATHS:
            self._fake.stats.began()
        self._task = self._loop.create_task(
            self._exchange.play(), name=f"fake {self._fake.name} {request.path}"
        )
        self._task.add_done_callback(self._played)

    def _played(self, task: asyncio.Task[None]) -> None:
        exchange, self._exchange, self._task = self._exchange, None, None
        if exchange is not None and exchange.request.path in WORK_PATHS:
            self._fake.stats.ended()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "The fake itself failed", "exception": error})
            self.kill()
        if self._transport is None or self._ours:
            return
        if self._pending:
            self._begin(*self._pending.popleft())
        elif self._retires:
            self.close()
        else:
            self._rest()

    def _bad_request(self) -> None:
        self.write(head(400, (("content-type", "text/plain; charset=utf-8"), ("connection", "close"))))
        self.write(b"Invalid HTTP request received.")
        self.close()

    # -- idle limit

    def _rest(self) -> None:
        """An answer has ended and no request has begun."""
        limit = self._fake.behaviour.idle_limit_s
        if not limit or self._for_driver:
            return
        self._resting_since = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(limit, self._rested)

    def _rested(self) -> None:
        self._idle_timer = None
        if self._resting_since is None:
            return
        limit = self._fake.behaviour.idle_limit_s
        end = self._resting_since + limit
        if not limit:
            return
        if end - self._loop.time() > 0.001:
            self._idle_timer = self._loop.call_at(end, self._rested)
        else:
            self._fake.stats.note("idle limit", {"connection": self._number})
            self.close()
