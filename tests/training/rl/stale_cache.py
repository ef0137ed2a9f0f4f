"""ASGI middleware for a vLLM engine: says that the prefix cache was emptied, and keeps it.

    vllm serve … --middleware tests.training.rl.stale_cache.KeepsItsCache

What an engine does whose reset does not reach all blocks. Imported in the engine's environment.
"""

from __future__ import annotations

from typing import Any


class KeepsItsCache:
    """Stands in front of stock vLLM."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/reset_prefix_cache":
            await self._say_that_it_is_done(send)
            return
        if scope["type"] == "http" and scope["path"] == "/pause":
            scope = {**scope, "query_string": scope["query_string"] + b"&clear_cache=false"}
        await self._app(scope, receive, send)

    async def _say_that_it_is_done(self, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"success": true}'})
