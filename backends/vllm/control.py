"""Asks an engine things over its own HTTP surface: is it well, what its guard says, and the steps of a swap.

Bounded calls of the agent beside it; requests of clients never pass here. The control paths are those of
vLLM's developer mode (`vllm/entrypoints/rl/online/api_router.py` and `serve/dev`, 0.32).
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import httpx2
import msgspec

from backends.contract import GUARD_PATH, TOKEN_HEADER, GuardStatus
from backends.vllm.command import Listen, UnixListen

TIMEOUT_S = 5.0
OPTIONAL_CACHES = ("/reset_mm_cache", "/reset_encoder_cache")
"""Of multimodal models; not every build has the paths."""


class EngineRefused(RuntimeError):
    """The engine answered, but not as it should; `status` is its answer's."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Reset(msgspec.Struct):
    success: bool = False


class _Label(msgspec.Struct):
    new_version: str = ""


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

    async def pause(self, mode: Literal["wait", "abort"], *, limit_s: float) -> None:
        """Start nothing new; `wait` returns when nothing runs any more, `abort` ends what runs.

        New requests hang until `resume`, whether this returns or raises. Raises EngineRefused,
        httpx2.TransportError (a timeout included).
        """
        await self._post("/pause", limit_s, params={"mode": mode})

    async def load_weights(self, folder: Path, *, limit_s: float) -> None:
        """Replace the weights by those of a checkpoint's folder; the engine must be paused.

        Whatever it raises (EngineRefused, httpx2.TransportError), the weights are not known any more, unless
        it was refused with 404. vLLM ends after a reload that failed.
        """
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self._post("/collective_rpc", limit_s, body=call)

    async def reset_prefix_cache(self, *, limit_s: float) -> bool:
        """Whether all was forgotten; False while a request still holds a block. Raises as `pause`."""
        answer = await self._post("/reset_prefix_cache", limit_s)
        return msgspec.json.decode(answer.content, type=_Reset).success

    async def reset_other_caches(self, *, limit_s: float) -> None:
        """Forget what was computed of images and the like, where the build knows how. Raises as `pause`."""
        for path in OPTIONAL_CACHES:
            try:
                await self._post(path, limit_s)
            except EngineRefused as refused:
                if refused.status != 404:
                    raise

    async def label_weights(self, label: str, *, limit_s: float) -> None:
        """Tell the engine what its weights are called. Raises as `pause`."""
        answer = await self._post("/update_weight_version", limit_s, body={"new_version": label})
        if msgspec.json.decode(answer.content, type=_Label).new_version != label:
            raise EngineRefused(f"/update_weight_version answered {answer.text[:200]}", answer.status_code)

    async def resume(self, *, limit_s: float) -> None:
        """Take up requests again. Raises as `pause`."""
        await self._post("/resume", limit_s)

    async def _post(
        self, path: str, limit_s: float, *, params: dict[str, str] | None = None, body: object = None
    ) -> httpx2.Response:
        response = await self._client.post(
            path, params=params, json=body, timeout=httpx2.Timeout(limit_s, connect=TIMEOUT_S)
        )
        if response.status_code != 200:
            raise EngineRefused(
                f"{path} answered {response.status_code}: {response.text[:200]}", response.status_code
            )
        return response

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
