"""Stands in front of vLLM inside its own process: an ASGI middleware given to `vllm serve --middleware`.

- A path that is not known to be for clients needs the token, else it is not found. vLLM mixes its control
  paths with the public ones on one port, and its `--api-key` does not cover them.
- Out of rotation, new requests and /health get a 503 that means "ask another engine", not "broken"; only
  requests with the token and the probe header pass. The environment may tell it to start so.
- Every answer carries the version of the weights that were there when its request came.
- Requests in flight are counted where it is true: from arrival to the last byte, or to the client's leaving;
  and they can be ended, with an error event or by cutting their connections.
- While an adapter is served, requests for the model are requests for the adapter.

Standard library only. One instance in one process: `vllm serve` must run one API server.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import Any, NamedTuple

from backends.contract import ELSEWHERE_HEADER, GUARD_PATH, PROBE_HEADER, TOKEN_HEADER, VERSION_HEADER
from backends.vllm.asgi import (
    App,
    Headers,
    Message,
    Receive,
    Running,
    Scope,
    Send,
    answer,
    plain_path,
    read_body,
    refuse,
)

TOKEN_VARIABLE = "CHANGEOVER_GUARD_TOKEN"  # noqa: S105 (a variable's name)
VERSION_VARIABLE = "CHANGEOVER_MODEL_VERSION"
ELSEWHERE_VARIABLE = "CHANGEOVER_ELSEWHERE"
"""Set: start out of rotation, for this reason."""
NO_VERSION = "unversioned"
"""What an engine serves that was not told a version."""
MAX_OWN_BYTES = 64 * 1024
"""Body of a request to the guard itself."""
MAX_RENAMED_BYTES = 64 * 1024 * 1024
"""Body of a request whose model is replaced by an adapter."""
REASONS = ("draining", "swapping", "uncertain")

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


class Adapter(NamedTuple):
    """Requests for `model` are answered by the LoRA adapter `name`."""

    model: str
    name: str


class State(NamedTuple):
    """What the agent sets."""

    version: str
    draining: bool = False
    reason: str = REASONS[0]
    """Why nothing new is taken, while `draining`."""
    adapter: Adapter | None = None


class Guard:
    """Wraps an ASGI application. Token, version and rotation at the start come from the environment.

    Without a token in the environment no token opens anything: all control paths are closed.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        environment = os.environ  # noqa: TID251 (the engine's entry point)
        self._token = environment.get(TOKEN_VARIABLE, "").encode()
        reason = environment.get(ELSEWHERE_VARIABLE, "")
        version = environment.get(VERSION_VARIABLE, "") or NO_VERSION
        self._state = State(version, reason in REASONS, reason if reason in REASONS else REASONS[0])
        self._running: set[Running] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, _stamped(send, self._state.version))
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = plain_path(scope)
        if path in WORK_PATHS or path == "/health":
            await self._rotating(scope, receive, send)
        elif path in OPEN_PATHS:
            await self._app(scope, receive, send)
        elif not self._authorized(scope):
            await refuse(send, 404, "not_found", "Not Found")
        elif path == GUARD_PATH:
            await self._own(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _rotating(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is answered only in rotation, except to our own agent, whose requests are not counted."""
        if _header(scope, PROBE_HEADER) and self._authorized(scope):
            await self._app(scope, receive, send)
        elif self._state.draining:
            text = "This engine takes no new requests now; another one does."
            await refuse(send, 503, "draining", text, self._elsewhere())
        elif scope["path"] == "/health":
            await self._app(scope, receive, send)
        else:
            await self._work(scope, receive, send)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        running = Running(send)
        self._running.add(running)
        try:
            if self._state.adapter is not None:
                receive = await _renamed(scope, receive, self._state.adapter)
            if not await running.run(self._app, scope, receive):
                await running.say_end(self._elsewhere())
        finally:
            self._running.discard(running)

    def _elsewhere(self) -> Headers:
        return ((ELSEWHERE_HEADER.encode(), self._state.reason.encode()),)

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET shows the guard's state. POST sets some of it, all or nothing:

        `version`, `draining`, `reason`, `adapter` ({"model", "name"} or null), and `end` ("abort" with an
        error event, or "cut") for the requests that run.
        """
        if scope["method"] == "POST":
            problem = self._set(await read_body(receive, MAX_OWN_BYTES) or b"")
            if problem:
                await refuse(send, 400, "invalid_request_error", problem)
                return
        elif scope["method"] != "GET":
            await refuse(send, 405, "method_not_allowed", "Use GET or POST.")
            return
        state = self._state
        status = {"version": state.version, "draining": state.draining, "in_flight": len(self._running)}
        await answer(send, 200, status)

    def _set(self, body: bytes) -> str | None:
        """Apply all of a valid body, or nothing of an invalid one and say why."""
        try:
            wanted = json.loads(body)  # noqa: TID251 (standard library only)
        except ValueError:
            return "The body must be JSON."
        if not isinstance(wanted, dict) or not wanted.keys() <= {*State._fields, "end"}:
            return f"The body must be an object with some of {', '.join(State._fields)}, end."
        end = wanted.pop("end", None)
        if end not in (None, "abort", "cut"):
            return '`end` must be "abort" or "cut".'
        problem = _problem(wanted)
        if problem is not None:
            return problem
        if wanted.get("adapter") is not None:
            wanted["adapter"] = Adapter(**wanted["adapter"])
        self._state = self._state._replace(**wanted)
        if end is not None:
            for running in list(self._running):
                running.end(orderly=end == "abort")
        return None

    def _authorized(self, scope: Scope) -> bool:
        given = _header(scope, TOKEN_HEADER)
        return bool(self._token) and len(given) == 1 and hmac.compare_digest(given[0], self._token)


def _problem(wanted: dict[str, Any]) -> str | None:
    """What is wrong with a change of the state."""
    version, adapter = wanted.get("version", NO_VERSION), wanted.get("adapter")
    if not isinstance(version, str) or not version or not version.isascii() or not version.isprintable():
        return "`version` must be printable ASCII."
    if not isinstance(wanted.get("draining", False), bool):
        return "`draining` must be true or false."
    if wanted.get("reason", REASONS[0]) not in REASONS:
        return f"`reason` must be one of {', '.join(REASONS)}."
    if adapter is not None and not (
        isinstance(adapter, dict)
        and adapter.keys() == set(Adapter._fields)
        and all(isinstance(part, str) for part in adapter.values())
    ):
        return "`adapter` must be null or have `model` and `name`."
    return None


def _header(scope: Scope, name: str) -> list[bytes]:
    wanted = name.encode()
    return [value for key, value in scope["headers"] if key == wanted]


def _stamped(send: Send, version: str) -> Send:
    """Adds the version to the head of an answer."""
    name, value = VERSION_HEADER.encode(), version.encode()

    async def stamp(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [pair for pair in message.get("headers", ()) if pair[0].lower() != name]
            message = {**message, "headers": [*others, (name, value)]}
        await send(message)

    return stamp


async def _renamed(scope: Scope, receive: Receive, adapter: Adapter) -> Receive:
    """The request with the adapter's name for the model's; what is not such JSON goes on as it came."""
    body = await read_body(receive, MAX_RENAMED_BYTES)
    if body is None:
        body = b""  # the client left, or the engine refuses it
    try:
        content = json.loads(body)  # noqa: TID251 (standard library only)
    except ValueError:
        content = None
    if isinstance(content, dict) and content.get("model") in (None, adapter.model):
        body = json.dumps({**content, "model": adapter.name}).encode()  # noqa: TID251
        others = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        scope["headers"] = [*others, (b"content-length", str(len(body)).encode())]
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
