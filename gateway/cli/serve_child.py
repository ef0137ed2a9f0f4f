"""One process that `changeover serve` starts: on a leash, its output echoed, ended in order or at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping

from backends.leash import leashed

CHUNK_BYTES = 64 * 1024

Echo = Callable[[str], None]


class Child:
    """Made by `start`; `wait` must be awaited until it returns."""

    def __init__(self, process: asyncio.subprocess.Process, echo: Echo) -> None:
        self._process = process
        self._echo = echo

    @classmethod
    async def start(
        cls, argv: tuple[str, ...], environment: Mapping[str, str], *, grace_s: float, echo: Echo
    ) -> Child:
        """Start it. `grace_s`: from being told to end until everything of it is killed."""
        process = await asyncio.create_subprocess_exec(
            *leashed(argv, grace_s=grace_s),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C on the terminal is ours alone, which ends the children in order
        )
        return cls(process, echo)

    async def wait(self) -> int:
        """Echo its lines until it and all below it have ended; returns its exit code."""
        stream = self._process.stdout
        rest = ""
        while stream is not None and (chunk := await stream.read(CHUNK_BYTES)):
            *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
            for line in lines:
                self._echo(line)
        if rest:
            self._echo(rest)
        return await self._process.wait()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Everything below it too, at once."""
        self._signal(signal.SIGQUIT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)
