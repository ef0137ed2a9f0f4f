"""The rest of an answer, from another engine, in the form in which it began.

Stands where the client's own answer stood (`gateway.flow.request.Answer`) and gives it events as the first
engine would have gone on writing them: the same id, chat chunks for a chat, usage over both parts, nothing
said twice. Pure but for what it hands on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import BackendFailed, GatewayError
from gateway.flow.request import Answer, piece_by_piece
from gateway.flow.resume.kept import Kept
from gateway.flow.resume.place import Place
from gateway.flow.resume.produced import Object, Produced
from gateway.http.forms import payloads
from gateway.http.sse import DONE, boundary
from gateway.upstream.headers import Told

MAX_EVENT_BYTES = 1024 * 1024

_encode = msgspec.json.Encoder().encode


class Rejoined:
    """See the module. `inner` has been told of the head and of everything in `kept`."""

    def __init__(self, inner: Answer, kept: Kept, produced: Produced, place: Place) -> None:
        self.inner = inner
        self._kept = kept
        self._produced = produced
        self._before = place.tokens
        self._skip = place.said_again
        self._missing = place.missing
        self._offset = len(produced.text) + len(place.missing) - len(place.said_again)
        self._held = b""
        self._tokens = 0
        """Of the rest, as its engine counts them."""
        self._whole = False
        self._wrong = False
        self._refused = False

    def head(self, status: int, told: Told, marks: bytes) -> None:
        self._refused = status != 200

    def data(self, data: bytes) -> None:
        if self._refused or self._wrong:
            return
        data = self._held + data
        end = boundary(data)
        self._held = data[end:]
        self._wrong = len(self._held) > MAX_EVENT_BYTES
        try:
            written = b"".join(map(self._rewritten, payloads(data[:end])))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError):
            self._wrong = True
            return
        if written:
            self._kept.add(written)
            self.inner.data(self._kept.shown(written))

    def whole(self, told: Told, marks: bytes, body: bytes) -> bool:
        return piece_by_piece(self, told, marks, body)

    def done(self) -> bool:
        if self._held and not self._refused:
            self.data(b"\n\n")
        return self._whole and not self._wrong and self.inner.done()

    def broken(self, error: GatewayError, marks: bytes) -> None:
        self.inner.broken(error, marks)

    def heartbeat(self, marks: bytes) -> bool:
        return self.inner.heartbeat(marks)

    def usage(self) -> tuple[int, int]:
        return len(self._produced.prompt_ids), self._before + self._tokens

    def _rewritten(self, payload: bytes) -> bytes:
        if payload == b"[DONE]":
            self._whole = True
            return DONE
        event = msgspec.json.decode(payload)
        if "error" in event:
            raise ValueError("the engine reports an error")
        usage = event.get("usage")
        if usage is not None:
            self._tokens = usage["completion_tokens"]
        if not event["choices"]:
            if usage is None or not self._produced.wants_usage:
                return b""
            return _line({**self._produced.start, "choices": [], "usage": self._usage()})
        [choice] = event["choices"]
        out = {**self._produced.start, "choices": [self._choice(choice)]}
        if usage is not None and self._produced.wants_usages:
            out["usage"] = self._usage()
        return _line(out)

    def _usage(self) -> Object:
        return self._produced.usage(self._before + self._tokens)

    def _choice(self, choice: Object) -> Object:
        text = self._said(choice.get("text") or "")
        ends = {"finish_reason": choice.get("finish_reason")}
        if ends["finish_reason"] is not None or not self._produced.chat:
            ends["stop_reason"] = choice.get("stop_reason")
        ids = choice.get("token_ids")
        logprobs = choice.get("logprobs")
        if self._produced.chat:
            delta = {"content": text} if text or ends["finish_reason"] is None else {}
            said = {"index": 0, "delta": delta, "logprobs": _chat_logprobs(logprobs)}
        else:
            said = {"index": 0, "text": text, "logprobs": self._shifted(logprobs)}
            ends["prompt_token_ids"] = None
        return {**said, **ends, "token_ids": ids}

    def _said(self, text: str) -> str:
        """The part of it that is new to the client."""
        if self._missing:
            text, self._missing = self._missing + text, ""
        if not self._skip:
            return text
        if text.startswith(self._skip):
            text, self._skip = text[len(self._skip) :], ""
        elif self._skip.startswith(text):
            text, self._skip = "", self._skip[len(text) :]
        else:
            raise ValueError("the other engine says something else")
        return text

    def _shifted(self, logprobs: Object | None) -> Object | None:
        """Offsets count from the beginning of the whole answer."""
        if logprobs is None or not logprobs.get("text_offset"):
            return logprobs
        return {**logprobs, "text_offset": [at + self._offset for at in logprobs["text_offset"]]}


def ending(produced: Produced, kept: Kept) -> bytes:
    """What is missing of an answer whose tokens have all come: its usage, its last event."""
    out = b""
    if produced.wants_usage and not produced.counted:
        out += _line({**produced.start, "choices": [], "usage": produced.usage(len(produced.ids))})
    if not produced.ended:
        out += DONE
    return out


def cut_short(reason: str) -> BackendFailed:
    """The error of an answer that cannot go on."""
    return BackendFailed(f"The engine has gone, and the answer cannot be continued on another one: {reason}.")


def _line(event: Object) -> bytes:
    return b"data: %b\n\n" % _encode(event)


def _chat_logprobs(logprobs: Object | None) -> Object | None:
    """A completion's log-probabilities in a chat's form."""
    if logprobs is None:
        return None
    content: list[Any] = []
    tops = logprobs.get("top_logprobs") or [None] * len(logprobs["tokens"])
    for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], tops, strict=True):
        others = [_chat_token(name, other) for name, other in (top or {}).items()]
        content.append({**_chat_token(token, value), "top_logprobs": others})
    return {"content": content}


def _chat_token(token: str, value: float) -> Object:
    return {"token": token, "logprob": value, "bytes": list(token.encode())}
