"""An engine of one's own that no client reaches: started for a test, ended with it, nothing left behind.

Started exactly as a backend starts its engine, so that what is found out holds for that.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.models.resolve import ResolvedModel
from backends.settings import EngineSettings
from backends.vllm.command import Command, UnixListen, engine_command
from backends.vllm.control import EngineControl
from backends.vllm.install import Installation
from backends.vllm.log import EngineLog
from backends.vllm.process import EngineProcess
from backends.vllm.reasons import EngineExit

POLL_S = 0.25
SHUTDOWN_S = 1.0
"""Nothing runs in it that would be worth waiting for."""


class ScratchFailed(RuntimeError):
    """The engine did not start; the message says why."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """How scratch engines are started on this machine."""

    settings: EngineSettings
    engine: Installation
    environment: Mapping[str, str]
    """Of this process: engines inherit it, less our own variables."""

    def command(self, folder: Path, place: Path, token: str = "") -> Command:
        """What starts an engine on the model in `folder`, with its socket and files in `place`."""
        return engine_command(
            self.settings,
            ResolvedModel(str(folder), local=True),
            vllm=self.engine.vllm,
            device=self.engine.device,
            listen=UnixListen(place / "engine.sock"),
            token=token,
            version="scratch",
            scratch=place / "ipc",
            cores=len(os.sched_getaffinity(0)),
            inherited=self.environment,
        )


@dataclass(frozen=True, slots=True)
class Running:
    """One scratch engine that is ready."""

    control: EngineControl
    socket: Path

    @property
    def url(self) -> str:
        return f"unix:{self.socket}"


@asynccontextmanager
async def scratch_engine(scratch: Scratch, folder: Path) -> AsyncIterator[Running]:
    """An engine on the model in `folder` (absolute), ready. Leaving ends it, cancelling kills it.

    Raises ScratchFailed if it is not ready within `start_timeout_s`.
    """
    place = Path(tempfile.mkdtemp(prefix="co-scratch-"))
    listen, token = UnixListen(place / "engine.sock"), secrets.token_urlsafe(16)
    log = EngineLog(place / "engine.log")
    process = await EngineProcess.start(
        scratch.command(folder, place, token), listen, log, scratch=place / "ipc", shutdown_s=SHUTDOWN_S
    )
    try:
        async with asyncio.TaskGroup() as group, EngineControl(listen, token) as control:
            end = group.create_task(process.wait(), name="scratch-engine:log")
            try:
                await _ready(control, end, scratch.settings.start_timeout_s)
                yield Running(control, listen.path)
            finally:
                process.kill()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        process.kill()
        await process.wait()
        log.close()
        shutil.rmtree(place, ignore_errors=True)


async def _ready(control: EngineControl, end: asyncio.Task[EngineExit], limit_s: float) -> None:
    began = time.monotonic()
    while not await control.is_well():
        if end.done():
            raise ScratchFailed(f"the scratch engine ended: {end.result().reason}")
        if time.monotonic() - began > limit_s:
            raise ScratchFailed(f"the scratch engine was not ready within {limit_s:g} s")
        await asyncio.sleep(POLL_S)
