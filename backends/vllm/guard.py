"""Stands in front of vLLM inside its own process: an ASGI middleware given to `vllm serve --middleware`.

- A path that is not known to be for clients needs the token, else it is not found. vLLM mixes its control
  paths with the public ones on one port, and its `--api-key` does not cover them.
- While draining, new requests get a 503 that means "ask another engine", not "broken".
- Every answer carries the version of the weights.
- Requests in flight are counted where it is true: from arrival to the last byte, or to the client's leaving.

Standard library only. One instance in one process: `vllm serve` must run one API server.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from backends.contract import ELSEWHERE_HEADER, GUARD_PATH, TOKEN_HEADER, VERSION_HEADER

TOKEN_VARIABLE = "CHANGEOVER_GUARD_TOKEN"  # noqa: S105 (a variable's name)
VERSION_VARIABLE = "CHANGEOVER_MODEL_VERSION"
NO_VERSION = "unversioned"
"""What an engine serves that was not told a version."""
MAX_BODY_BYTES = 64 * 1024
"""Of a request to the guard itself."""

WORK_PATHS = frozenset(
    {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/v1/score",
        "/v1/rerank",
        "/v2/rerank",
        "/score",
        "/rerank",
        "/pooling",
        "/classify",
        "/tokenize",
        "/detokenize",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
    }
)
"""What clients ask of a model: counted, and refused while draining."""
OPEN_PATHS = frozenset({"/v1/models", "/health", "/ping", "/version", "/metrics", "/load"})
"""What anyone who reaches the engine may look at."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Wraps an ASGI application. Token and first version come from the environment of the engine.

    Without a token in the environment no token opens anything: all control paths are closed.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._token = os.environ.get(TOKEN_VARIABLE, "").encode()  # noqa: TID251 (the engine's entry point)
        self._version = os.environ.get(VERSION_VARIABLE, "") or NO_VERSION  # noqa: TID251
        self._draining = False
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, self._stamped(send))
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _plain_path(scope)
        if path in WORK_PATHS:
            await self._work(scope, receive, send)
        elif path in OPEN_PATHS:
            await self._app(scope, receive, send)
        elif not self._authorized(scope):
            await _refuse(send, 404, "not_found", "Not Found")
        elif path == GUARD_PATH:
            await self._own(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._draining:
            await _refuse(
                send,
                503,
                "draining",
                "This engine takes no new requests now; another one does.",
                ((ELSEWHERE_HEADER.encode(), b"draining"),),
            )
            return
        self._in_flight += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET shows the guard's state; POST `{"version": ..., "draining": ...}`, either or both, sets it."""
        if scope["method"] == "POST":
            problem = self._set(await _body(receive))
            if problem:
                await _refuse(send, 400, "invalid_request_error", problem)
                return
        elif scope["method"] != "GET":
            await _refuse(send, 405, "method_not_allowed", "Use GET or POST.")
            return
        status = {"version": self._version, "draining": self._draining, "in_flight": self._in_flight}
        await _answer(send, 200, status)

    def _set(self, body: bytes) -> str | None:
        """Apply all of a valid body, or nothing of an invalid one and say why."""
        try:
            wanted = json.loads(body)  # noqa: TID251 (standard library only)
        except ValueError:
            return "The body must be JSON."
        if not isinstance(wanted, dict) or not wanted.keys() <= {"version", "draining"}:
            return "The body must be an object with `version`, `draining` or both."
        version = wanted.get("version", self._version)
        draining = wanted.get("draining", self._draining)
        if not isinstance(version, str) or not version or not version.isascii() or not version.isprintable():
            return "`version` must be printable ASCII."
        if not isinstance(draining, bool):
            return "`draining` must be true or false."
        self._version, self._draining = version, draining
        return None

    def _authorized(self, scope: Scope) -> bool:
        name = TOKEN_HEADER.encode()
        given = [value for key, value in scope["headers"] if key == name]
        return bool(self._token) and len(given) == 1 and hmac.compare_digest(given[0], self._token)

    def _stamped(self, send: Send) -> Send:
        """Adds the version to the head of an answer, as it is when the head is sent."""
        name = VERSION_HEADER.encode()

        async def stamp(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [pair for pair in message.get("headers", ()) if pair[0].lower() != name]
                message = {**message, "headers": [*others, (name, self._version.encode())]}
            await send(message)

        return stamp


def _plain_path(scope: Scope) -> str:
    """The path as the client wrote it; empty if it is encoded or mounted, so that it matches nothing."""
    path: str = scope["path"]
    raw = scope.get("raw_path")
    if scope.get("root_path") or (raw is not None and raw.partition(b"?")[0] != path.encode()):
        return ""
    return path


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            return b""
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse(
    send: Send, status: int, code: str, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """An error in OpenAI's shape."""
    error = {"message": text, "type": code, "param": None, "code": status}
    await _answer(send, status, {"error": error}, headers)


async def _answer(
    send: Send, status: int, content: object, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    body = json.dumps(content).encode()  # noqa: TID251 (standard library only)
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
