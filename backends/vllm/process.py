"""One run of one engine: a tree of processes on a leash, started, watched and ended as one.

None of them survives: not when the engine dies, not when it hangs, not when this process is killed
(`backends.leash`). A run is started once and never reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

from backends.leash import leashed
from backends.vllm.command import Command, Listen, UnixListen
from backends.vllm.log import EngineLog
from backends.vllm.reasons import EngineExit, explain_exit

KILL_GRACE_S = 10.0
"""Past the engine's own limit for finishing requests; then everything is killed."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where Linux keeps it)
WORKER_GROUP = "vllm_dist_*"
"""The file by which workers of one engine find each other; their shared memory begins with its name."""


class EngineProcess:
    """Made by `start`. `wait` must be awaited until it returns, or `kill` be called."""

    def __init__(self, process: asyncio.subprocess.Process, log: EngineLog, scratch: Path) -> None:
        self._process = process
        self._log = log
        self._scratch = scratch

    @classmethod
    async def start(
        cls, command: Command, listen: Listen, log: EngineLog, *, scratch: Path, shutdown_s: float
    ) -> EngineProcess:
        """Start the engine; returns at once. What an earlier run left behind is removed first."""
        if isinstance(listen, UnixListen):
            # vLLM does not start where its socket's file exists.
            listen.path.unlink(missing_ok=True)
        _clear(scratch)
        log.begin(command.argv)
        process = await asyncio.create_subprocess_exec(
            *leashed(command.argv, grace_s=shutdown_s + KILL_GRACE_S),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=command.environment,
            start_new_session=True,  # Ctrl-C on the terminal is for whoever started us
        )
        return cls(process, log, scratch)

    @property
    def engine_pid(self) -> int | None:
        """The engine's API server, which is the leash's first child; None while there is none."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            first = children.read_text().split()[:1]
        except (FileNotFoundError, ProcessLookupError):
            return None
        return int(first[0]) if first else None

    async def wait(self) -> EngineExit:
        """Relay the log until the engine and all its processes have ended. Cancelling leaves it running."""
        if self._process.stdout is not None:
            await self._log.relay(self._process.stdout)
        code = await self._process.wait()
        if code < 0:
            # The leash itself was killed, so it could not clean up: its session is the engine's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            code = 128 - code
        _clear(self._scratch)
        return explain_exit(code, list(self._log.tail))

    def kill(self) -> None:
        """Kill everything now."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGQUIT)


def _clear(scratch: Path) -> None:
    """Empty the engine's temporary folder.

    Workers that were killed leave shared memory named after a file there, which nobody else removes.
    """
    for group in scratch.glob(WORKER_GROUP):
        for memory in SHARED_MEMORY.glob(f"{group.name}-*"):
            memory.unlink(missing_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, exist_ok=True)
