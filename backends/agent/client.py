"""Asks a backend's agent, over its control socket. For `changeover serve` and `changeover status`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import msgspec

from backends.contract import TOKEN_HEADER, BackendStatus, GuardStatus

TIMEOUT_S = 5.0


class AgentUnreachable(RuntimeError):
    """No agent answers there, or not as it should."""


class AgentClient:
    """Use as an async context manager. Every call raises AgentUnreachable and is bounded in time."""

    def __init__(self, control_socket: Path, token: str) -> None:
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(uds=str(control_socket)),
            base_url="http://agent",
            headers={TOKEN_HEADER: token},
            timeout=TIMEOUT_S,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def status(self) -> BackendStatus:
        return msgspec.json.decode(await self._call("GET", "/status"), type=BackendStatus)

    async def set_draining(self, draining: bool) -> GuardStatus:
        body = msgspec.json.encode({"draining": draining})
        return msgspec.json.decode(await self._call("POST", "/drain", body), type=GuardStatus)

    async def stop(self) -> None:
        """Returns when the agent has begun to end, not when it has ended."""
        await self._call("POST", "/stop")

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            response = await self._client.request(method, path, content=body)
        except httpx2.TransportError as error:
            raise AgentUnreachable(str(error) or type(error).__name__) from error
        if response.status_code >= 400:
            raise AgentUnreachable(f"{path} answered {response.status_code}: {response.text[:300]}")
        return response.content
