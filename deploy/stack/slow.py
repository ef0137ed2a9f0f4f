"""Holds one real engine slow: its core is stopped most of the time, its HTTP server is not.

So it answers probes at once and requests late, which no health check finds: what alerts on latency are for.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from deploy.stack.running import StackFailed, descendants

STOPPED_S = 1.5
RUNNING_S = 0.3
CORE = b"EngineCore"
"""In the command line of vLLM's process that computes."""


@asynccontextmanager
async def held_slow(agent: int) -> AsyncIterator[None]:
    """The engine below this process, until the end of the block. Raises StackFailed if there is none."""
    core = _core(agent)
    async with asyncio.TaskGroup() as group:
        holding = group.create_task(_hold(core), name="hold an engine slow")
        try:
            yield
        finally:
            holding.cancel()


async def _hold(pid: int) -> None:
    with suppress(ProcessLookupError):
        try:
            while True:
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(STOPPED_S)
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(RUNNING_S)
        finally:
            os.kill(pid, signal.SIGCONT)


def _core(agent: int) -> int:
    for pid in descendants(agent):
        if CORE in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise StackFailed(f"no process below {agent} is an engine's core")
