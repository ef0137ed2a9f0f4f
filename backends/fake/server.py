"""The fake engine as a server: its sockets, its connections, its life.

`async with Fake.start(behaviour) as fake` in tests, `python -m backends.fake` as a process. Everything
hangs on the running event loop; nothing is global. The optional control port takes the same requests and
is neither deaf nor frozen with the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, TextIO

from backends.fake.behaviour import Behaviour
from backends.fake.connection import Connection
from backends.fake.driver import drive
from backends.fake.engine import Engine
from backends.fake.record import Record, Request
from backends.fake.reply import Reply
from backends.fake.stage import Stage


class Fake:
    def __init__(
        self,
        behaviour: Behaviour,
        name: str,
        host: str,
        port: int | None,
        uds: Path | None,
        control_port: int | None,
        log: TextIO | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.name = name
        self.host = host
        self.port = port or 0
        """The TCP port; 0 where only the Unix socket is served."""
        self.uds = uds
        self.control_port = control_port or 0
        self.stats = Record(name, log)
        self.stage = Stage(name, self.stats, self._abort_running, self._drive, self.die)
        self.dead = asyncio.Event()
        """Set when the fake was told to die."""
        self._tcp = port is not None
        self._driven_apart = control_port is not None
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._frozen = False
        self._thaw_timer: asyncio.TimerHandle | None = None
        self.behave(behaviour)

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        behaviour: Behaviour | None = None,
        *,
        name: str = "a",
        host: str = "127.0.0.1",
        port: int | None = 0,
        uds: Path | None = None,
        control_port: int | None = None,
        log: TextIO | None = None,
    ) -> AsyncIterator[Self]:
        """Serve until the block ends. Port 0 takes a free one; `port=None` serves only the Unix socket."""
        fake = cls(behaviour or Behaviour(), name, host, port, uds, control_port, log)
        await fake.start_again()
        try:
            yield fake
        finally:
            await fake.stop()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}" if self._tcp else f"unix:{self.uds}"

    @property
    def behaviour(self) -> Behaviour:
        return self.stage.behaviour

    @property
    def engine(self) -> Engine:
        return self.stage.engine

    # -- its life

    async def start_again(self) -> None:
        """Listen, on the same port as before if it has listened before."""
        if self._tcp:
            server = await self.loop.create_server(
                lambda: Connection(self, False), self.host, self.port, backlog=4096
            )
            self.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)
        if self.uds is not None:
            self.uds.unlink(missing_ok=True)
            path = str(self.uds)
            self._servers.append(
                await self.loop.create_unix_server(lambda: Connection(self, False), path, backlog=4096)
            )
        if self._driven_apart:
            server = await self.loop.create_server(
                lambda: Connection(self, True), self.host, self.control_port
            )
            self.control_port = server.sockets[0].getsockname()[1]
            self._servers.append(server)
        self.stats.note("listening", {"port": self.port})

    async def stop(self) -> None:
        """Close the sockets and every connection in order; return when all are closed."""
        self._stop_listening()
        for connection in list(self._connections):
            connection.close()
        try:
            await asyncio.wait_for(self._nobody.wait(), 1)
        except TimeoutError:  # a peer that does not read keeps its connection from closing in order
            await self.kill()
        self.thaw()

    async def retire(self, within: float = 30.0) -> None:
        """End as vLLM does with `--shutdown-timeout`: nothing new, what runs ends, idle connections close.

        Raises TimeoutError if requests are under way after `within` seconds.
        """
        self.stats.note("retires")
        self._stop_listening()
        for connection in list(self._connections):
            connection.retire()
        await asyncio.wait_for(self._nobody.wait(), within)

    async def kill(self) -> None:
        """Close the sockets and reset every connection, as if the process were killed."""
        self._stop_listening()
        for connection in list(self._connections):
            connection.kill()
        await self._nobody.wait()

    def die(self) -> None:
        """`kill` without waiting, and say so in `dead`."""
        self.stats.note("died")
        self._stop_listening()
        for connection in list(self._connections):
            connection.kill()
        self.dead.set()

    def freeze(self, seconds: float | None = None) -> None:
        """Neither read nor write, like a stopped process. None: until `thaw`."""
        self.thaw()
        self.stats.note("frozen", {"seconds": seconds})
        self._frozen = True
        self.engine.stop_time()
        self._heed()
        if seconds is not None:
            self._thaw_timer = self.loop.call_later(seconds, self.thaw)

    def cut_running(self, *, orderly: bool) -> None:
        """End what runs: as an engine that aborts it does, or by resetting the connections."""
        if orderly:
            self._abort_running()
            return
        for connection in list(self._connections):
            if connection.is_working:
                connection.kill()

    def thaw(self) -> None:
        if self._thaw_timer is not None:
            self._thaw_timer.cancel()
            self._thaw_timer = None
        if self._frozen:
            self._frozen = False
            self.engine.start_time()
            self._heed()
            self.stats.note("thawed")

    def behave(self, behaviour: Behaviour) -> None:
        """Behave so from the next request on. What is under way goes on as it began."""
        self.stage.behave(behaviour)
        self._heed()

    # -- what connections ask

    @property
    def hears(self) -> bool:
        """Whether requests are read."""
        return not self._frozen and not self.behaviour.deaf

    def joined(self, connection: Connection) -> int:
        """A connection was made; returns its number."""
        self._connections.add(connection)
        self._nobody.clear()
        self.stats.connections_open += 1
        self.stats.connections_total += 1
        return self.stats.connections_total

    def parted(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        self.stats.connections_open -= 1
        if not self._connections:
            self._nobody.set()

    # -- inside

    def _heed(self) -> None:
        for connection in list(self._connections):
            connection.heed()

    def _abort_running(self) -> None:
        for connection in list(self._connections):
            connection.abort_generation()

    def _drive(self, request: Request) -> Reply:
        return drive(self, request)

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
