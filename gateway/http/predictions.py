"""The answers of `/predict`: an engine's completion or chat answer in the route's own form.

One class for whole answers, one for streams; both follow `gateway.flow.request.Answer`. An engine's
refusal (4xx, 5xx) is passed on as it came.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from gateway.errors import GatewayError
from gateway.flow.request import piece_by_piece
from gateway.http.exchange import JSON, Exchange
from gateway.http.predict import Output, PredictResponse, Usage
from gateway.http.relay import EVENT_STREAM, LateRefusal, PlainBody
from gateway.http.sse import DONE, HEARTBEAT, boundary, error_event
from gateway.upstream.headers import Told

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A whole answer above this size is not one that an engine gives to a prompt."""

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Nor is an event of a stream above this one."""


class Turn(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    """A choice of a completion or chat answer, whole or a piece of a stream."""

    index: int = 0
    text: str | None = None
    message: Turn | None = None
    delta: Turn | None = None
    finish_reason: str | None = None

    @property
    def words(self) -> str:
        if self.text is not None:
            return self.text
        turn = self.message or self.delta
        return (turn.content or "") if turn is not None else ""


class Completion(msgspec.Struct):
    """What of an engine's answer `/predict` passes on."""

    id: str = ""
    model: str = ""
    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Completion).decode
_encode = msgspec.json.Encoder().encode


class Prediction:
    """A whole answer."""

    __slots__ = (
        "_block",
        "_cached",
        "_encoding",
        "_exchange",
        "_many",
        "_parts",
        "_refusal",
        "_size",
        "_usage",
        "_version",
    )

    def __init__(self, exchange: Exchange, *, many: bool) -> None:
        self._exchange = exchange
        self._many = many
        self._cached = False
        self._parts: list[bytes] = []
        self._size = 0
        self._refusal: PlainBody | None = None
        self._block = b""
        self._encoding = b""
        self._version = ""
        self._usage = Usage()

    def head(self, status: int, told: Told, marks: bytes) -> None:
        if status != 200:
            self._refusal = PlainBody(self._exchange, status, told.block + marks, told.length)
        self._block = JSON + marks
        self._encoding = told.content_encoding
        self._version = told.version.decode("latin-1")

    def data(self, data: bytes) -> None:
        if self._refusal is not None:
            self._refusal.data(data)
            return
        self._size += len(data)
        if self._size <= MAX_ANSWER_BYTES:
            self._parts.append(data)

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        return piece_by_piece(self, told, marks, body)

    def done(self) -> bool:
        if self._refusal is not None:
            return self._refusal.done()
        if self._size > MAX_ANSWER_BYTES:
            return False
        body = b"".join(self._parts)
        try:
            if self._encoding not in (b"", b"identity"):
                body = zlib.decompressobj(47).decompress(body, MAX_ANSWER_BYTES)
            completion = _decode(body)
        except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
            return False
        if not completion.choices:
            return False
        self._usage = completion.usage or Usage()
        self._exchange.reply(200, self._block, _encode(self._response(completion)))
        return True

    def _response(self, completion: Completion) -> PredictResponse:
        response = PredictResponse(
            id=completion.id,
            model=completion.model,
            version=self._version,
            usage=self._usage,
            cached=self._cached,
        )
        choices = completion.choices
        if self._many:
            choices.sort(key=lambda choice: choice.index)
            response.outputs = [
                Output(choice.index, choice.words, choice.finish_reason) for choice in choices
            ]
        else:
            response.text = choices[0].words
            response.finish_reason = choices[0].finish_reason
        return response

    def broken(self, error: GatewayError, marks: bytes) -> None:
        if self._exchange.started:
            self._exchange.cut()
        else:
            self._exchange.fail(error, marks)

    def kept(self, told: Told, marks: bytes, body: bytes) -> bool:
        self._cached = True
        self.head(200, told, marks)
        self.data(body)
        return self.done()

    def heartbeat(self, marks: bytes) -> bool:
        return False

    def usage(self) -> tuple[int, int]:
        return self._usage.prompt_tokens, self._usage.completion_tokens


class PredictionStream:
    """A streamed answer: an event for each piece, one with the usage, then `[DONE]`."""

    __slots__ = (
        "_cached",
        "_damaged",
        "_exchange",
        "_failed",
        "_held",
        "_many",
        "_refusal",
        "_usage",
        "_version",
        "_whole",
    )

    def __init__(self, exchange: Exchange, *, many: bool) -> None:
        self._exchange = exchange
        self._many = many
        self._cached = False
        self._held = b""
        self._version = ""
        self._usage = Usage()
        self._whole = False
        self._damaged = False
        """A piece cannot be read: what comes after it must not look like its continuation."""
        self._failed = False
        """The engine itself has said that it failed."""
        self._refusal: PlainBody | LateRefusal | None = None

    def head(self, status: int, told: Told, marks: bytes) -> None:
        exchange = self._exchange
        self._version = told.version.decode("latin-1")
        if status == 200 and told.content_type.startswith(b"text/event-stream"):
            exchange.begin(200, EVENT_STREAM + marks, None)
        elif exchange.started:
            self._refusal = LateRefusal(exchange, status)
        else:
            self._refusal = PlainBody(exchange, status, told.block + marks, told.length)

    def data(self, data: bytes) -> None:
        if self._refusal is not None:
            self._refusal.data(data)
            return
        data = self._held + data
        end = boundary(data)
        self._held = data[end:]
        if end:
            self._exchange.write(b"".join(map(self._translate, _payloads(data[:end]))))
        if len(self._held) > MAX_EVENT_BYTES or self._damaged:
            self._damaged = True
            self._held = b""

    def _translate(self, payload: bytes) -> bytes:
        if self._damaged or self._failed:
            return b""
        if payload == b"[DONE]":
            self._whole = True
            return DONE
        try:
            piece = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._damaged = True
            return b""
        if piece.error is not None:
            self._failed = True
            return b"data: %b\n\n" % payload.replace(b"\n", b" ")
        response = PredictResponse(id=piece.id, model=piece.model, version=self._version)
        if not piece.choices:
            if piece.usage is None:
                return b""
            self._usage = piece.usage
            response.usage = piece.usage
            response.cached = self._cached
            return b"data: %b\n\n" % _encode(response)
        out = b""
        for choice in piece.choices:
            response.text = choice.words
            response.finish_reason = choice.finish_reason
            if self._many:
                response.index = choice.index
            out += b"data: %b\n\n" % _encode(response)
        return out

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        return piece_by_piece(self, told, marks, body)

    def done(self) -> bool:
        if self._refusal is not None:
            return self._refusal.done()
        if self._held:
            self.data(b"\n\n")
        if self._whole:
            self._exchange.end()
        return self._whole

    def broken(self, error: GatewayError, marks: bytes) -> None:
        exchange = self._exchange
        if not exchange.started:
            exchange.fail(error, marks)
        elif isinstance(self._refusal, PlainBody):
            self._refusal.broken(error)
        else:
            exchange.write(b"" if self._failed else error_event(error))
            exchange.end()

    def kept(self, told: Told, marks: bytes, body: bytes) -> bool:
        self._cached = True
        self.head(200, told, marks)
        self.data(body)
        return self.done()

    def heartbeat(self, marks: bytes) -> bool:
        if isinstance(self._refusal, PlainBody):
            return False
        self._exchange.begin(200, EVENT_STREAM + marks, None)
        self._exchange.write(HEARTBEAT)
        return True

    def usage(self) -> tuple[int, int]:
        return self._usage.prompt_tokens, self._usage.completion_tokens


def _payloads(events: bytes) -> list[bytes]:
    """The data of each whole event; comments and other fields are left out."""
    payloads = []
    for block in events.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if lines:
            payloads.append(b"\n".join(lines))
    return payloads
