"""What a stream has brought until now, kept as bytes so that another engine can go on from there.

The engine is asked for the ids of its tokens (`return_token_ids`, vLLM 0.32), and its client does not see
them: where it did not ask for them itself they become the `null` that stands there otherwise, so that every
event is what it would have been. Nothing is parsed while all goes well. Owned by one call.
"""

from __future__ import annotations

import re

from gateway.http.routes import OPENAI_ENDING
from gateway.http.sse import boundary

MAX_KEPT_BYTES = 1024 * 1024
"""Of one stream: some thousands of tokens. A longer one cannot be continued."""

_FIELD = b'"return_token_ids"'
_OURS = b'{"return_token_ids":true,'
_IDS = re.compile(rb'"((?:prompt_)?token_ids)":\s?\[[0-9, ]*\]')
"""Text in an event never matches: within a JSON string the quotes are escaped."""
_NULL = rb'"\1":null'


def amended(body: bytes) -> bytes:
    """The body of a request for a stream, with the question for token ids; unchanged if that stands in it."""
    if _FIELD in body:
        return body
    rest = body.lstrip()
    if not rest.startswith(b"{") or rest[1:].lstrip().startswith(b"}"):
        return body
    return _OURS + rest[1:]


class Kept:
    """One stream's request and events."""

    __slots__ = ("_held", "_hides", "_size", "body", "continued", "events", "lost")

    def __init__(self, body: bytes) -> None:
        """`body`: as the client sent it, from before `amended`."""
        self.body = body
        self.events: list[bytes] = []
        """Whole events only, with their token ids."""
        self.lost = False
        """It has grown beyond what is kept."""
        self.continued = 0
        """How often it has gone on elsewhere."""
        self._hides = _FIELD not in body
        self._held = b""
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """Take what has come; returns what the client gets: whole events, without what it did not want.

        What is not whole yet waits, so that no client has the half of an event when another engine goes on.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        if not data.endswith(b"\n\n"):
            end = boundary(data)
            self._held = data[end:]
            data = data[:end]
        if len(self._held) > MAX_KEPT_BYTES:
            data += self._held
            self._held = b""
            self._give_up()
        if not data:
            return b""
        self.add(data)
        return self.shown(data)

    @property
    def ended(self) -> bool:
        """Its last event has come, as far as that can be told."""
        last = self.events[-1] if self.events else b""
        return self.lost or OPENAI_ENDING.found_in(last) or OPENAI_ENDING.found_in(self._held)

    def rest(self) -> bytes:
        """What came behind the last whole event, once the engine has ended in order."""
        rest, self._held = self._held, b""
        return self.shown(rest)

    def shown(self, events: bytes) -> bytes:
        """Events as the client gets them."""
        return _IDS.sub(_NULL, events) if self._hides else events

    def add(self, events: bytes) -> None:
        """Whole events that the client gets."""
        if self.lost:
            return
        self._size += len(events)
        if self._size > MAX_KEPT_BYTES:
            self._give_up()
        else:
            self.events.append(events)

    def drop_half(self) -> None:
        """The engine has gone: the part of an event is worth nothing."""
        self._held = b""

    def _give_up(self) -> None:
        self.lost = True
        self.events.clear()
