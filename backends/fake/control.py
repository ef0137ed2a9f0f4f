"""vLLM's control paths and our guard's, as the fake answers them.

Each is a coroutine that has its effect on the engine and returns the answer. `/pause?mode=wait` returns
when nothing runs; `mode=abort` ends what runs. `/collective_rpc` with `reload_weights` takes on the last
part of `weights_path` as its weights, and leaves the label alone, as vLLM does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs

import msgspec

from backends.contract import GUARD_PATH, TOKEN_HEADER, GuardStatus
from backends.fake.engine import Engine
from backends.fake.record import Record, Request
from backends.fake.reply import Reply, error_reply, json_reply

METHODS = {
    "/pause": ("POST",),
    "/resume": ("POST",),
    "/is_paused": ("GET",),
    "/collective_rpc": ("POST",),
    "/update_weight_version": ("POST",),
    "/weight_info": ("GET",),
    "/reset_prefix_cache": ("POST",),
    "/sleep": ("POST",),
    "/wake_up": ("POST",),
    GUARD_PATH: ("GET", "POST"),
}
"""The control paths and what they take."""


class Control:
    def __init__(self, engine: Engine, record: Record, abort_running: Callable[[], None]) -> None:
        self._engine = engine
        self._record = record
        self._abort_running = abort_running
        self.token: str | None = None
        """Demanded of every caller."""
        self.cache_resets = True
        """Whether `/reset_prefix_cache` succeeds."""

    async def reply(self, request: Request) -> Reply:
        """The answer to a request for a path in `METHODS`."""
        if self.token is not None and request.header(TOKEN_HEADER) != self.token:
            return error_reply(404, "Not Found")
        self._record.note(
            "control", {"path": request.path, "body": request.body[:1000].decode(errors="replace")}
        )
        if request.path == "/pause":
            return await self._pause(request)
        if request.path == "/resume":
            self._engine.resume()
            return json_reply({"status": "resumed"})
        if request.path == "/is_paused":
            return json_reply({"is_paused": self._engine.paused})
        if request.path == "/weight_info":
            return json_reply({"weight_version": self._engine.label})
        if request.path == "/reset_prefix_cache":
            return json_reply({"success": self.cache_resets})
        if request.path in ("/sleep", "/wake_up"):
            return Reply()
        try:
            given = msgspec.json.decode(request.body) if request.body else {}
        except msgspec.DecodeError as error:
            return error_reply(400, f"JSON decode error: {error}")
        if not isinstance(given, dict):
            return error_reply(400, "Request body must be a JSON object")
        if request.path == GUARD_PATH:
            return self._guard(request.method, given)
        if request.path == "/collective_rpc":
            return self._rpc(given)
        return self._label(given)

    async def _pause(self, request: Request) -> Reply:
        mode = parse_qs(request.query).get("mode", ["abort"])[0]
        if mode not in ("abort", "wait", "keep"):
            return error_reply(400, f"1 validation error:\n  mode: {mode!r} is not one of abort, wait, keep")
        self._engine.pause(hold_running=mode == "keep")
        if mode == "abort":
            self._abort_running()
        if mode != "keep":
            await self._engine.is_idle()
        return json_reply({"status": "paused"})

    def _rpc(self, given: dict[str, Any]) -> Reply:
        method = given.get("method")
        if method is None:
            return error_reply(400, "Missing 'method' in request body")
        if method == "reload_weights":
            kwargs = given.get("kwargs")
            path = kwargs.get("weights_path") if isinstance(kwargs, dict) else None
            if path:
                self._engine.weights = PurePosixPath(str(path)).name
        return json_reply({"results": [None]})

    def _label(self, given: dict[str, Any]) -> Reply:
        version = given.get("new_version")
        if not isinstance(version, str):
            return error_reply(
                400, "1 validation error:\n  new_version: Field required", param="body.new_version"
            )
        self._engine.label = version
        return json_reply({"success": True, "new_version": version})

    def _guard(self, method: str, given: dict[str, Any]) -> Reply:
        if method == "POST":
            if isinstance(given.get("draining"), bool):
                self._engine.draining = given["draining"]
            if isinstance(given.get("version"), str):
                self._engine.label = given["version"]
        return json_reply(GuardStatus(self._engine.label, self._engine.draining, self._record.in_flight))
