"""The answer of the OpenAI routes: the engine's bytes, as they come.

A plain body is passed on with its length. An event stream is passed on event by event: a part of an
event waits for its rest, so that the gateway can put a word between two events but never into one. A
stream that ends without its last event is broken, and ends in an error event instead. Once a comment
line has kept a silent stream alive, its status is 200 whatever comes: a refusal that the engine sends
after that becomes an error event.
"""

from __future__ import annotations

import re
from typing import Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.flow.request import piece_by_piece
from gateway.http.exchange import Exchange
from gateway.http.routes import Ending
from gateway.http.sse import HEARTBEAT, MAX_HELD, boundary, error_event, rejection_event
from gateway.upstream.headers import Told

EVENT_STREAM = (
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
)

TAIL = 2048
"""How much of a body's end is kept to read the usage from."""

_USUAL_COUNTS = re.compile(
    rb'"usage":\{"prompt_tokens":(\d+),"total_tokens":\d+,"completion_tokens":(\d+)[,}]'
)
"""As vLLM writes it."""
_COUNTS = re.compile(rb'"(prompt_tokens|completion_tokens)":\s*(\d+)')


class Body(Protocol):
    """One way of passing a body on."""

    tail: bytes

    @property
    def interruptible(self) -> bool:
        """Whether a word of the gateway's own may be put in at this place."""

    def data(self, data: bytes) -> None: ...
    def done(self) -> bool: ...
    def broken(self, error: GatewayError) -> None: ...


class PlainBody:
    """Bytes of a known length, held until the first of them come; or of an unknown length."""

    __slots__ = ("_block", "_exchange", "_length", "_status", "tail")

    interruptible = False

    def __init__(self, exchange: Exchange, status: int, block: bytes, length: int | None) -> None:
        self._exchange = exchange
        self._status = status
        self._block = block
        self._length = length
        self.tail = b""
        if length is None:
            exchange.begin(status, block, None)

    def data(self, data: bytes) -> None:
        exchange = self._exchange
        if not exchange.started:
            if len(data) == self._length:
                self.tail = data
                exchange.reply(self._status, self._block, data)
                return
            exchange.begin(self._status, self._block, self._length)
        self.tail = (self.tail + data)[-TAIL:]
        exchange.write(data)

    def done(self) -> bool:
        if self._exchange.started:
            self._exchange.end()
        else:
            self._exchange.reply(self._status, self._block, b"")
        return True

    def broken(self, error: GatewayError) -> None:
        if self._exchange.started:
            self._exchange.cut()
        else:
            self._exchange.fail(error)


class EventBody:
    """An event stream, passed on event by event; a very long event in parts."""

    __slots__ = ("_ending", "_exchange", "_held", "_inside", "_whole", "tail")

    def __init__(self, exchange: Exchange, ending: Ending) -> None:
        self._exchange = exchange
        self._ending = ending
        self._whole = False
        self._inside = False
        self._held = b""
        self.tail = b""

    @property
    def interruptible(self) -> bool:
        return not self._inside

    def data(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
            self._held = b""
        if not data.endswith(b"\n\n"):
            end = boundary(data)
            if len(data) - end < MAX_HELD:
                self._held = data[end:]
                data = data[:end]
                if not data:
                    return
                self._inside = False
            else:
                self._inside = True
        elif self._inside:
            self._inside = False
        if self._ending.found_in(data):
            self._whole = True
            # The usage stands in the event before the last one.
            self.tail = (self.tail + data)[-TAIL:]
        else:
            self.tail = data
        self._exchange.write(data)

    def done(self) -> bool:
        # An engine may leave out the empty line behind its last event.
        if self._ending.found_in(self._held):
            self._whole = True
        if self._whole:
            self._exchange.write(self._held)
            self._exchange.end()
        return self._whole

    def broken(self, error: GatewayError) -> None:
        self._exchange.write((b"\n\n" if self._inside else b"") + error_event(error))
        self._exchange.end()


class LateRefusal:
    """An answer that is no stream, to a client that has been told that it gets one."""

    __slots__ = ("_exchange", "_status", "tail")

    interruptible = True

    def __init__(self, exchange: Exchange, status: int) -> None:
        self._exchange = exchange
        self._status = status
        self.tail = b""

    def data(self, data: bytes) -> None:
        if len(self.tail) < MAX_HELD:
            self.tail += data

    def done(self) -> bool:
        self._exchange.write(rejection_event(self._status, self.tail))
        self._exchange.end()
        return True

    def broken(self, error: GatewayError) -> None:
        self._exchange.write(error_event(error))
        self._exchange.end()


class Relay(msgspec.Struct, eq=False):
    """Passes one answer on to one client; see `gateway.flow.request.Answer`."""

    _exchange: Exchange
    stream: bool
    ending: Ending
    _body: Body | None = None
    _tail: bytes = b""

    def head(self, status: int, told: Told, marks: bytes) -> None:
        exchange = self._exchange
        # A compressed stream is passed on unread: whether it is whole only its client can tell.
        if status == 200 and told.streams:
            if exchange.started and told.version:
                # Its head went out to keep it alive, before anybody knew who would answer.
                exchange.write(b": x-model-version: %b\n\n" % told.version)
            exchange.begin(status, told.block + b"x-accel-buffering: no\r\n" + marks, None)
            self._body = EventBody(exchange, self.ending)
        elif exchange.started:
            self._body = LateRefusal(exchange, status)
        else:
            self._body = PlainBody(exchange, status, told.block + marks, told.length)

    def data(self, data: bytes) -> None:
        assert self._body is not None
        self._body.data(data)

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        exchange = self._exchange
        plain = told.length == len(body) and not told.content_type.startswith(b"text/event-stream")
        if not plain or exchange.started:
            return piece_by_piece(self, told, marks, body)
        self._tail = body
        exchange.reply(200, told.block + marks, body)
        return True

    def done(self) -> bool:
        assert self._body is not None
        return self._body.done()

    def broken(self, error: GatewayError, marks: bytes) -> None:
        if not self._exchange.started:
            self._exchange.fail(error, marks)
        elif self._body is not None:
            self._body.broken(error)
        else:
            self._exchange.write(error_event(error))
            self._exchange.end()

    def kept(self, told: Told, marks: bytes, body: bytes) -> bool:
        exchange = self._exchange
        if told.length is not None:
            exchange.reply(200, told.block + marks, body)
        else:
            exchange.begin(200, EVENT_STREAM + marks, None)
            exchange.write(body)
            exchange.end()
        return True

    def heartbeat(self, marks: bytes) -> bool:
        exchange = self._exchange
        if not self.stream or (self._body is not None and not self._body.interruptible):
            return False
        exchange.begin(200, EVENT_STREAM + marks, None)
        exchange.write(HEARTBEAT)
        return True

    def usage(self) -> tuple[int, int]:
        """Read from the end of the body, where engines put it; zeros where it is not there."""
        return read_usage(self._body.tail if self._body is not None else self._tail)


def read_usage(tail: bytes) -> tuple[int, int]:
    """Prompt and completion tokens from the last `usage` object in `tail`."""
    at = tail.rfind(b'"usage":')
    if at < 0:
        return 0, 0
    usual = _USUAL_COUNTS.match(tail, at)
    if usual is not None:
        return int(usual[1]), int(usual[2])
    counts = {name: int(number) for name, number in _COUNTS.findall(tail, at)}
    return counts.get(b"prompt_tokens", 0), counts.get(b"completion_tokens", 0)
