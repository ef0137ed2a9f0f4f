"""ASGI in small pieces, for the guard: bodies, refusals, and requests that can be ended from outside.

Standard library only, since it runs inside vLLM.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

ERROR_EVENT = {
    "error": {
        "message": "The engine changes its weights and could not wait for this request any longer.",
        "type": "weights_changed",
        "param": None,
        "code": 503,
    }
}


class Cut(Exception):
    """The answer has begun and will not be ended: the server closes the connection without an orderly end."""


class Running:
    """One request of a client inside the engine; `end` may end it from another task."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._task = asyncio.current_task()
        self._begun = False
        self._events = False
        self._orderly: bool | None = None
        """How it was ended; None: it was not."""

    async def send(self, message: Message) -> None:
        """Passes on what the engine answers, until the request was ended."""
        if self._orderly is not None:
            return
        if message["type"] == "http.response.start":
            self._begun = True
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            self._events = any(kind.startswith(b"text/event-stream") for kind in kinds)
        await self._send(message)

    def end(self, *, orderly: bool) -> None:
        """Let the engine compute no more of it. Its client is told by `say_end`, in the request's task."""
        if self._orderly is None and self._task is not None:
            self._orderly = orderly
            self._task.cancel()

    async def run(self, app: App, scope: Scope, receive: Receive) -> bool:
        """Let the engine answer; whether it did so by itself. Cancelled by others it raises as usual."""
        try:
            await app(scope, receive, self.send)
        except asyncio.CancelledError:
            if self._orderly is None or self._task is None:
                raise
            self._task.uncancel()
        return self._orderly is None

    async def say_end(self, refusal: Headers) -> None:
        """Before the first byte: ask elsewhere. After it an error event, or (not orderly) `Cut`."""
        if not self._begun:
            await refuse(
                self._send, 503, "draining", "This engine changes its weights; ask another.", refusal
            )
        elif self._orderly and self._events:
            event = b"data: " + json.dumps(ERROR_EVENT).encode() + b"\n\n"  # noqa: TID251
            await self._send({"type": "http.response.body", "body": event})
        else:
            raise Cut


def plain_path(scope: Scope) -> str:
    """The path as the client wrote it; empty if it is encoded or mounted, so that it matches nothing."""
    path: str = scope["path"]
    raw = scope.get("raw_path")
    if scope.get("root_path") or (raw is not None and raw.partition(b"?")[0] != path.encode()):
        return ""
    return path


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the client left or it is longer than `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def refuse(send: Send, status: int, code: str, text: str, headers: Headers = ()) -> None:
    """An error in OpenAI's shape."""
    error = {"message": text, "type": code, "param": None, "code": status}
    await answer(send, status, {"error": error}, headers)


async def answer(send: Send, status: int, content: object, headers: Headers = ()) -> None:
    body = json.dumps(content).encode()  # noqa: TID251 (standard library only)
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
