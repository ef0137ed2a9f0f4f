"""A server that sends exact bytes, and a receiver that keeps what a connection tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.upstream.address import Address
from gateway.upstream.faults import Fault
from gateway.upstream.headers import Headers, Told
from gateway.upstream.pool import Pool

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: engine\r\ncontent-length: 0\r\n\r\n"


@dataclass(slots=True)
class Receiver:
    """See `gateway.upstream.connection.Receiver`."""

    heads: list[tuple[int, Headers]] = field(default_factory=list)
    data: bytes = b""
    fault: Fault | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    endings: int = 0
    """How often it was told of an end: once, whatever happens."""

    def on_head(self, status: int, headers: Headers) -> None:
        self.heads.append((status, headers))

    def on_data(self, data: bytes) -> None:
        self.data += data

    def on_whole(self, told: Told, body: bytes) -> None:
        self.on_head(200, told.headers)
        self.on_data(body)
        self.on_done()

    def on_done(self) -> None:
        self.endings += 1
        self.ended.set()

    def on_lost(self, fault: Fault) -> None:
        self.endings += 1
        self.fault = fault
        self.ended.set()

    @property
    def statuses(self) -> list[int]:
        return [status for status, _ in self.heads]


@asynccontextmanager
async def engine(script: Script) -> AsyncIterator[Pool]:
    """A pool to a server that runs the script on each connection."""

    scripts: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        scripts.add(task)
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the gateway closed the connection, as many of these tests want, or the test has ended
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Pool(Address("127.0.0.1", server.sockets[0].getsockname()[1]), connect_s=2)
    try:
        yield pool
    finally:
        pool.abort()
        server.close()
        for task in scripts:
            task.cancel()
        await asyncio.gather(*scripts)


def answering(*answers: bytes, close: bool = True) -> Script:
    """A script that answers the requests of a connection with these bytes, one after the other."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        if not close:
            await reader.read()

    return script


async def asked(pool: Pool) -> Receiver:
    """One request's answer, from its beginning to its end."""
    receiver = Receiver()
    connection = pool.take() or await pool.open()
    connection.send(REQUEST, b"", receiver)
    async with asyncio.timeout(5):
        await receiver.ended.wait()
    return receiver
