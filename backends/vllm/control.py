"""Asks an engine things over its own HTTP surface: is it well, what its guard says, and what a swap needs.

Calls of the agent beside it; requests of clients never pass here. Every call is bounded in time and raises
EngineRefused, or httpx2.TransportError where nothing answered: what the engine did is not known then.
"""

from __future__ import annotations

import httpx2
import msgspec

from backends.contract import GUARD_PATH, PROBE_HEADER, GuardStatus
from backends.control_client import TIMEOUT_S, Address, ControlClient
from backends.vllm.command import Listen, UnixListen


class EngineRefused(RuntimeError):
    """The engine answered, but not as it should."""


class EngineControl(ControlClient):
    """A client of one engine's control paths; passes its guard while it is out of rotation."""

    def __init__(self, listen: Listen, token: str) -> None:
        super().__init__(address_of(listen), token, {PROBE_HEADER: "1"})

    async def is_well(self) -> bool:
        """Whether `/health` answers 200 within the time limit."""
        try:
            return (await self._http.get("/health")).status_code == 200
        except httpx2.TransportError:
            return False

    async def guard(self) -> GuardStatus:
        return msgspec.json.decode(await self.call("GET", GUARD_PATH), type=GuardStatus)

    async def set_draining(self, draining: bool) -> GuardStatus:
        """Refuse new requests, or take them again."""
        return await self.set_guard({"draining": draining})

    async def set_guard(self, wanted: dict[str, object]) -> GuardStatus:
        """Set some of what the guard keeps (`backends.vllm.guard`), all or nothing."""
        return msgspec.json.decode(await self.call("POST", GUARD_PATH, wanted), type=GuardStatus)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        """One call of a control path; the bytes of a 200 answer, which proves nothing by itself."""
        response = await self._http.request(
            method,
            path,
            params=params,
            content=None if body is None else msgspec.json.encode(body),
            headers={"content-type": "application/json"},
            timeout=timeout_s,
        )
        if response.status_code != 200:
            raise EngineRefused(f"{path} answered {response.status_code}: {response.text[:300]}")
        return response.content


def address_of(listen: Listen) -> Address:
    """Where this machine reaches it: an engine that listens on every address is asked on the loopback one."""
    if isinstance(listen, UnixListen):
        return listen.path
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen.host, listen.host)
    return f"http://{host}:{listen.port}"
