"""Asks an engine things over its own HTTP surface: is it well, what its guard says, and the steps of a swap.

Bounded calls of the agent beside it; requests of clients never pass here. The control paths are those of
vLLM's developer mode (`vllm/entrypoints/rl/online/api_router.py` and `serve/dev`, 0.32). Every call but
`is_well` raises EngineRefused, or httpx2.TransportError (a timeout included) where nothing answered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import httpx2
import msgspec

from backends.contract import GUARD_PATH, PROBE_HEADER, GuardStatus
from backends.control_client import TIMEOUT_S, Address, ControlClient
from backends.vllm.command import Listen, UnixListen

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


class EngineControl(ControlClient):
    """A client of one engine's control paths; it passes the guard while the engine is out of rotation."""

    def __init__(self, listen: Listen, token: str) -> None:
        super().__init__(address_of(listen), token, {PROBE_HEADER: "1"})

    async def is_well(self) -> bool:
        """Whether `/health` answers 200 within the time limit."""
        try:
            return (await self._http.get("/health")).status_code == 200
        except httpx2.TransportError:
            return False

    async def guard(self) -> GuardStatus:
        return msgspec.json.decode(await self.ask("GET", GUARD_PATH, TIMEOUT_S), type=GuardStatus)

    async def set_draining(self, draining: bool) -> GuardStatus:
        """Refuse new requests, or take them again."""
        return await self.set_guard({"draining": draining})

    async def set_guard(self, wanted: dict[str, object]) -> GuardStatus:
        """Change some of what the guard keeps (`backends.vllm.guard`): all of it or nothing."""
        answer = await self.ask("POST", GUARD_PATH, TIMEOUT_S, body=wanted)
        return msgspec.json.decode(answer, type=GuardStatus)

    async def pause(self, mode: Literal["wait", "abort"], *, limit_s: float) -> None:
        """Start nothing new; `wait` returns when nothing runs any more, `abort` ends what runs.

        New requests hang until `resume`, whether this returns or raises.
        """
        await self.ask("POST", "/pause", limit_s, params={"mode": mode})

    async def load_weights(self, folder: Path, *, limit_s: float) -> None:
        """Replace the weights by those of a checkpoint's folder; the engine must be paused.

        Whatever it raises, the weights are not known any more, unless it was refused with 404. vLLM ends
        after a reload that failed.
        """
        call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self.ask("POST", "/collective_rpc", limit_s, body=call)

    async def reset_prefix_cache(self, *, limit_s: float) -> bool:
        """Whether all was forgotten, offloaded blocks too; False while a request still holds one."""
        params = {"reset_external": "true"}  # where no KV connector is set up, this does nothing and succeeds
        answer = await self.ask("POST", "/reset_prefix_cache", limit_s, params=params)
        return msgspec.json.decode(answer, type=_Reset).success

    async def reset_other_caches(self, *, limit_s: float) -> None:
        """Forget what was computed of images and the like, where the build knows how."""
        for path in OPTIONAL_CACHES:
            try:
                await self.ask("POST", path, limit_s)
            except EngineRefused as refused:
                if refused.status != 404:
                    raise

    async def label_weights(self, label: str, *, limit_s: float) -> None:
        """Tell the engine what its weights are called."""
        answer = await self.ask("POST", "/update_weight_version", limit_s, body={"new_version": label})
        if msgspec.json.decode(answer, type=_Label).new_version != label:
            raise EngineRefused(f"/update_weight_version answered {answer[:200]!r}", 200)

    async def resume(self, *, limit_s: float) -> None:
        """Take up requests again."""
        await self.ask("POST", "/resume", limit_s)

    async def load_adapter(self, name: str, folder: Path, *, limit_s: float) -> None:
        """Load a LoRA adapter beside what is served; requests name it as their model."""
        body = {"lora_name": name, "lora_path": str(folder)}
        await self.ask("POST", "/v1/load_lora_adapter", limit_s, body=body)

    async def unload_adapter(self, name: str, *, limit_s: float) -> None:
        """Forget an adapter; one that is not there is no error."""
        try:
            await self.ask("POST", "/v1/unload_lora_adapter", limit_s, body={"lora_name": name})
        except EngineRefused as refused:
            if refused.status != 404:
                raise

    async def complete(self, model: str, ids: list[int], tokens: int, *, limit_s: float) -> None:
        """Let the engine answer one prompt of token ids greedily."""
        body = {"model": model, "prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        await self.ask("POST", "/v1/completions", limit_s, body=body)

    async def ask(
        self,
        method: str,
        path: str,
        limit_s: float,
        *,
        params: dict[str, str] | None = None,
        body: object = None,
    ) -> bytes:
        """One call; the bytes of its 200."""
        response = await self._http.request(
            method,
            path,
            params=params,
            content=None if body is None else msgspec.json.encode(body),
            headers={} if body is None else {"content-type": "application/json"},
            timeout=httpx2.Timeout(limit_s, connect=TIMEOUT_S),
        )
        if response.status_code != 200:
            raise EngineRefused(
                f"{path} answered {response.status_code}: {response.text[:300]}", response.status_code
            )
        return response.content


def address_of(listen: Listen) -> Address:
    """Where this machine reaches it: an engine that listens on every address is asked on the loopback one."""
    if isinstance(listen, UnixListen):
        return listen.path
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen.host, listen.host)
    return f"http://{host}:{listen.port}"
