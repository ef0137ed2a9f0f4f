"""Starts the stack's programs in order, sees that each is up, and ends them in the other order.

Every process is on a leash: nothing survives this one, however it ends. The output of each is a file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from backends.leash import leashed
from deploy.stack.layout import LOOPBACK, Program

POLL_S = 0.2
START_LIMIT_S = 600.0
"""For engines that load a model on a busy machine."""


class StackFailed(Exception):
    """Says what did not work, with the end of its output."""


@dataclass(slots=True)
class Running:
    """The programs that were started, oldest first."""

    logs: Path
    environment: Mapping[str, str]
    say: Callable[[str], None]
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(self, *programs: Program) -> None:
        """Start these at once and return when all are up. Raises StackFailed."""
        began = time.monotonic()
        for program in programs:
            with (self.logs / f"{program.name}.log").open("wb") as log:
                self.processes[program.name] = await asyncio.create_subprocess_exec(
                    *leashed(program.command, grace_s=program.grace_s),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    env=dict(self.environment),
                    start_new_session=True,  # Ctrl-C is ours alone, and ends them in order
                )
        async with httpx2.AsyncClient(trust_env=False, timeout=2.0) as client:
            for program in programs:
                await self._up(program, client)
        names = ", ".join(program.name for program in programs)
        self.say(f"{names} up after {time.monotonic() - began:.0f} s")

    async def end(self) -> None:
        """All of them, the newest first; each has its grace. May be called twice."""
        while self.processes:
            name, process = self.processes.popitem()
            if process.returncode is None:
                process.terminate()
            await process.wait()
            self.say(f"{name} ended")

    def assert_alive(self) -> None:
        """Raises StackFailed if one has ended by itself."""
        for name, process in self.processes.items():
            if process.returncode is not None:
                raise StackFailed(f"{name} ended with {process.returncode}:\n{self.tail(name)}")

    def tail(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace")[-3000:]

    async def _up(self, program: Program, client: httpx2.AsyncClient) -> None:
        url = f"http://{LOOPBACK}:{program.port}{program.ready}"
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            self.assert_alive()
            try:
                if (await client.get(url)).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(POLL_S)
        raise StackFailed(f"{program.name} is not up after {START_LIMIT_S:.0f} s:\n{self.tail(program.name)}")


def descendants(pid: int) -> Sequence[int]:
    """The processes below one (Linux)."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            children = [int(child) for child in path.read_text().split()]
            found += children
            waiting += children
    return found
