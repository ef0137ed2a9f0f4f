"""Asks an engine things over its own HTTP surface: is it well, and what its guard says.

Short, bounded calls of the agent beside it; requests of clients never pass here.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx2
import msgspec

from backends.contract import GUARD_PATH, TOKEN_HEADER, GuardStatus
from backends.vllm.command import Listen, UnixListen

TIMEOUT_S = 5.0


class EngineRefused(RuntimeError):
    """The engine answered, but not as it should."""


class EngineControl:
    """A client of one engine's control paths. Use as an async context manager."""

    def __init__(self, listen: Listen, token: str) -> None:
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(uds=_socket(listen)),
            base_url=_base_url(listen),
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

    async def is_well(self) -> bool:
        """Whether `/health` answers 200 within the time limit."""
        try:
            return (await self._client.get("/health")).status_code == 200
        except httpx2.TransportError:
            return False

    async def guard(self) -> GuardStatus:
        """Raises EngineRefused, httpx2.TransportError."""
        return self._status(await self._client.get(GUARD_PATH))

    async def set_draining(self, draining: bool) -> GuardStatus:
        """Refuse new requests, or take them again. Raises EngineRefused, httpx2.TransportError."""
        return self._status(await self._client.post(GUARD_PATH, json={"draining": draining}))

    @staticmethod
    def _status(response: httpx2.Response) -> GuardStatus:
        if response.status_code != 200:
            raise EngineRefused(f"the guard answered {response.status_code}: {response.text[:200]}")
        return msgspec.json.decode(response.content, type=GuardStatus)


def _socket(listen: Listen) -> str | None:
    return str(listen.path) if isinstance(listen, UnixListen) else None


def _base_url(listen: Listen) -> str:
    """An engine that listens on every address is asked on the loopback one."""
    if isinstance(listen, UnixListen):
        return "http://engine"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen.host, listen.host)
    return f"http://{host}:{listen.port}"
