"""Asks a backend's agent over its control socket or port: for `changeover serve`, rollouts and commands."""

from __future__ import annotations

from typing import TypeVar

import httpx2
import msgspec

from backends.contract import BackendStatus, GuardStatus, SwapOrder, SwapStatus
from backends.control_client import ControlClient

T = TypeVar("T")


class AgentUnreachable(RuntimeError):
    """No agent answers there, or not as it should."""


class AgentRefused(AgentUnreachable):
    """It answered, with an error: 404 (no such swap, or a wrong token), 409 (another swap runs; what should
    be served changed meanwhile), 400, 502."""

    def __init__(self, path: str, status: int, message: str) -> None:
        super().__init__(f"{path} answered {status}: {message}")
        self.status = status
        self.message = message


class AgentClient(ControlClient):
    """Made with a socket's path or a URL, and the token. Every call raises AgentUnreachable and is bounded in
    time; each may be repeated, and does then nothing twice."""

    async def status(self) -> BackendStatus:
        return msgspec.json.decode(await self._call("GET", "/status"), type=BackendStatus)

    async def prepare(self, version: int) -> BackendStatus:
        """Fetch and verify a version ahead of its swap; `status().preparing` says how far it is."""
        return await self._post("/prepare", {"version": version}, BackendStatus)

    async def swap(self, order: SwapOrder) -> SwapStatus:
        """Begin a swap, or ask for the one of this id."""
        return await self._post("/swap", order, SwapStatus)

    async def swap_status(self, swap_id: str) -> SwapStatus:
        """The swap of this id; AgentRefused with 404 if the agent does not know it (any more)."""
        return msgspec.json.decode(await self._call("GET", f"/swap/{swap_id}"), type=SwapStatus)

    async def release(self, swap_id: str) -> SwapStatus:
        """Let a held swap serve. AgentRefused with 409 if something else should be served by now."""
        return await self._post("/release", {"id": swap_id}, SwapStatus)

    async def set_draining(self, draining: bool) -> GuardStatus:
        return await self._post("/drain", {"draining": draining}, GuardStatus)

    async def stop(self) -> None:
        """Returns when the agent has begun to end, not when it has ended."""
        await self._call("POST", "/stop")

    async def _post(self, path: str, body: object, answer: type[T]) -> T:
        return msgspec.json.decode(await self._call("POST", path, msgspec.json.encode(body)), type=answer)

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            response = await self._http.request(method, path, content=body)
        except httpx2.TransportError as error:
            raise AgentUnreachable(str(error) or type(error).__name__) from error
        if response.status_code >= 400:
            raise AgentRefused(path, response.status_code, _message(response))
        return response.content


class _Error(msgspec.Struct):
    message: str


class _Answer(msgspec.Struct):
    error: _Error


def _message(response: httpx2.Response) -> str:
    try:
        return msgspec.json.decode(response.content, type=_Answer).error.message
    except msgspec.DecodeError:
        return response.text[:300]
