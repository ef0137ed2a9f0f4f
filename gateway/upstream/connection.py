"""One HTTP/1.1 connection to an engine: an asyncio protocol over llhttp, one request at a time.

It owns framing towards the engine: informational answers are skipped, a body without a length ends
with the connection, and bytes that nobody asked for close it. A connection is given back for reuse
only when its answer ended cleanly, with nothing unsent and nothing unread. Used through `upstream.pool`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from gateway.upstream.faults import Fault
from gateway.upstream.headers import Headers, Told, read_answer

JOIN_BELOW = 64 * 1024
"""Head and body travel in one write up to this size; above it the copy would cost more than the call."""

MAX_HEADERS = 256
"""Header lines of one answer; an engine sends about ten."""

MAX_HEAD_BYTES = 256 * 1024
"""An answer whose head has not ended by then is none."""


MAX_KNOWN = 1024
MAX_KNOWN_BYTES = 1024
"""Heads that are remembered of one engine, and how long one may be: 1 MiB at most."""


class Receiver(Protocol):
    """Who gets an answer: a head, any number of data, then exactly one of done and lost."""

    def on_head(self, status: int, headers: Headers) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_whole(self, told: Told, body: bytes) -> None:
        """Instead of all others: a good answer (200) that came in one read, as most do."""

    def on_done(self) -> None: ...
    def on_lost(self, fault: Fault) -> None: ...


class Home(Protocol):
    """Where a connection goes back to."""

    known: KnownHeads

    def give(self, connection: Connection) -> None: ...
    def forget(self, connection: Connection) -> None: ...


class KnownHeads(dict[bytes, Told]):
    """Heads of good answers that came before from one engine, byte for byte, and what they say.

    An engine that is busy says the same over and over: at thousands of answers a second, all but a few have
    the date and the length of an earlier one. Only the parser fills it, from answers that came in one read:
    a head, then exactly as many bytes as it announces. So what is found here was read by the parser before,
    and where its body ends is certain. Bounded: when it is full it begins anew.
    """

    def learn(self, data: bytes, told: Told) -> None:
        """An answer came in one read, was good, and left its connection usable."""
        end = data.find(b"\r\n\r\n") + 4
        if told.length == len(data) - end and end <= MAX_KNOWN_BYTES:
            if len(self) >= MAX_KNOWN:
                self.clear()
            self[data[:end]] = told


class Connection(asyncio.Protocol):
    """Used by one request at a time; `answered` tells whether any byte of the answer has come."""

    __slots__ = (
        "_body",
        "_dirty",
        "_finished",
        "_head_bytes",
        "_headed",
        "_home",
        "_informational",
        "_keep_alive",
        "_parser",
        "_receiver",
        "_status",
        "_until_close",
        "answered",
        "headers",
        "idle_since",
        "paused",
        "reused",
        "transport",
    )

    def __init__(self, home: Home) -> None:
        self._home = home
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._until_close = False
        self._informational = False
        self._keep_alive = True
        self._finished = False
        self._dirty = False
        self._headed = False
        self._head_bytes = 0
        self._status = 0
        """Of a head that the receiver has not been told of; 0: none."""
        self._body: bytes | None = None
        """The first of the body that came with it."""
        self.transport: asyncio.Transport | None = None
        self.headers: Headers = []
        self.answered = False
        self.reused = False
        self.paused = False
        self.idle_since = 0.0

    # Towards the engine

    def send(self, head: bytes, body: bytes, receiver: Receiver) -> None:
        """Send a request. The connection must be idle. The receiver is called from now on."""
        transport = self.transport
        assert transport is not None
        assert self._receiver is None
        self._receiver = receiver
        self.answered = False
        self._until_close = False
        self._headed = False
        self._head_bytes = 0
        self._status = 0
        self._body = None
        if len(body) < JOIN_BELOW:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def abandon(self) -> None:
        """Close at once, without another word to the receiver. The engine sees its client leave."""
        self._receiver = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        """Stop reading: the client does not keep up."""
        if not self.paused and self.transport is not None and not self.transport.is_closing():
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.paused and self.transport is not None:
            self.paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def usable(self) -> bool:
        return self.transport is not None and self._receiver is None and not self.transport.is_closing()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:
            self.abandon()
        elif self.answered:
            self._parse(data, first=False)
        else:
            self.answered = True
            end = data.find(b"\r\n\r\n") + 4
            told = self._home.known.get(data[:end])
            if told is not None and told.length == len(data) - end:
                receiver, self._receiver = self._receiver, None
                self._go_home()
                receiver.on_whole(told, data[end:])
            else:
                self._parse(data, first=True)

    def _parse(self, data: bytes, *, first: bool) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._finished:
                self._fail(Fault.MALFORMED)
                return
            # The answer was whole; what came behind it is nobody's.
            self._dirty = True
        if self._finished:
            if self._status != 200:
                self._tell()
            self._complete(data if first else b"")
        elif self._headed:
            if self._status:
                self._tell()
        else:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._fail(Fault.MALFORMED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._home.forget(self)
        receiver, self._receiver = self._receiver, None
        self.transport = None
        if receiver is None:
            return
        if self._until_close and exc is None:
            receiver.on_done()
        else:
            receiver.on_lost(Fault.TRUNCATED if self.answered else Fault.LOST)

    def _fail(self, fault: Fault) -> None:
        receiver = self._receiver
        self.abandon()
        if receiver is not None:
            receiver.on_lost(fault)

    def _tell(self) -> None:
        """Tell the receiver of the head, and of the body's beginning, kept until the read's end."""
        status, self._status = self._status, 0
        body, self._body = self._body, None
        if status and self._receiver is not None:
            self._receiver.on_head(status, self.headers)
        # Hearing of the head, the receiver may have gone elsewhere.
        if body is not None and self._receiver is not None:
            self._receiver.on_data(body)

    def _complete(self, data: bytes) -> None:
        """The answer has ended. `data`: all of it, if it came in one read."""
        # Only after the whole read was parsed: bytes behind the answer would be taken for the next one.
        self._finished = False
        receiver, self._receiver = self._receiver, None
        status, self._status = self._status, 0
        if receiver is None or self.transport is None:
            return
        reusable = self._keep_alive and not self._dirty
        if reusable:
            self._go_home()
        else:
            self.transport.abort()
        if status:
            told = read_answer(self.headers)
            if reusable:
                self._home.known.learn(data, told)
            receiver.on_whole(told, self._body or b"")
        else:
            receiver.on_done()

    def _go_home(self) -> None:
        """Be reused, if nothing is unsent and nothing unread."""
        transport = self.transport
        assert transport is not None
        if self.paused or transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
        else:
            self._home.give(self)

    # llhttp callbacks

    def on_message_begin(self) -> None:
        if self._finished:
            # Another answer behind the one that was asked for: its head must not replace the first one's.
            raise ValueError("bytes behind the answer")
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._informational = 100 <= status < 200
        if self._informational or self._receiver is None or self._finished:
            return
        if len(self.headers) > MAX_HEADERS:
            raise ValueError("too many header lines")
        self._headed = True
        self._status = status
        self._keep_alive = self._parser.should_keep_alive()
        if not self._keep_alive:
            # llhttp also says so for a body that only the connection's end delimits.
            names = [name for name, _ in self.headers]
            self._until_close = b"content-length" not in names and b"transfer-encoding" not in names

    def on_body(self, data: bytes) -> None:
        if self._receiver is None or self._finished:
            return
        if self._status and self._body is None:
            self._body = data
            return
        if self._status:
            self._tell()
        if self._receiver is not None:
            self._receiver.on_data(data)

    def on_message_complete(self) -> None:
        if not self._informational:
            self._finished = True
