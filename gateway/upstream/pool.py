"""The connections to one engine: as many as there are requests, the newest idle one reused first.

Idle connections are closed before the engine would close them, so that a request seldom meets a dead
one; when it does, `flow.call` replaces it once. There is no cap here: admission bounds requests.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from gateway.upstream.address import Address
from gateway.upstream.connection import Connection, KnownHeads
from gateway.upstream.faults import Fault, Unreachable

IDLE_S = 4.0
"""Plain vLLM closes an idle connection after 5 s."""

MAX_IDLE = 512
"""Idle connections kept for one engine."""


class Pool:
    """Connections to one address. Closed once; afterwards every connection is closed as it comes back."""

    def __init__(self, address: Address, *, connect_s: float, idle_s: float = IDLE_S) -> None:
        self.address = address
        self.connect_s = connect_s
        self.idle_s = idle_s
        self._idle: dict[Connection, None] = {}
        """In the order in which they were given back; a connection that dies leaves at once."""
        self._all: set[Connection] = set()
        self._closed = False
        self.known = KnownHeads()

    def __repr__(self) -> str:
        return f"<Pool {self.address} open={len(self._all)} idle={len(self._idle)}>"

    @property
    def open_count(self) -> int:
        return len(self._all)

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    def take(self) -> Connection | None:
        """An idle connection, or None: then `open` one."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable():
                connection.reused = True
                return connection
        return None

    async def open(self) -> Connection:
        """A new connection. Unreachable if there is none within `connect_s`."""
        loop = asyncio.get_running_loop()
        address = self.address
        connection = Connection(self)
        try:
            async with asyncio.timeout(self.connect_s):
                if address.path:
                    await loop.create_unix_connection(lambda: connection, address.path)
                else:
                    await loop.create_connection(lambda: connection, address.host, address.port)
        except TimeoutError as error:
            connection.abandon()
            raise Unreachable(Fault.CONNECT_TIMEOUT, str(address)) from error
        except (OSError, UnicodeError) as error:
            raise Unreachable(Fault.REFUSED, f"{address} ({error})") from error
        except asyncio.CancelledError:
            # It may have been made in the very moment in which nobody wanted it any more.
            connection.abandon()
            raise
        if connection.transport is None:
            raise Unreachable(Fault.LOST, str(address))
        self._all.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= MAX_IDLE:
            connection.abandon()
            return
        connection.idle_since = monotonic()
        self._idle[connection] = None

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)

    def close_idle(self, now: float) -> None:
        """Close what has been idle for `idle_s`. `now` on the monotonic clock."""
        for connection in tuple(self._idle):
            if now - connection.idle_since <= self.idle_s:
                break
            del self._idle[connection]
            connection.abandon()

    def close(self) -> None:
        """Close what is idle, and what is busy as soon as its answer has ended."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[0].abandon()

    def abort(self) -> None:
        """Close everything now; whoever waits for an answer is told that it was lost."""
        self.close()
        for connection in tuple(self._all):
            if connection.transport is not None:
                connection.transport.abort()
