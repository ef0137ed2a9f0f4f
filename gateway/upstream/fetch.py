"""A whole small answer from an engine, awaited: for probes and control, not for traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.upstream.faults import Fault, Unreachable
from gateway.upstream.headers import Headers, Told
from gateway.upstream.pool import Pool

MAX_BYTES = 8 * 1024 * 1024
"""An engine's /metrics page has about 100 KB."""


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: Headers = field(default_factory=list)
    body: bytes = b""

    def header(self, name: bytes) -> str:
        """A header's value, or an empty string."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""


class _Collector:
    def __init__(self, future: asyncio.Future[Answer]) -> None:
        self._future = future
        self._answer = Answer()
        self._parts: list[bytes] = []
        self._size = 0

    def on_head(self, status: int, headers: Headers) -> None:
        self._answer.status = status
        self._answer.headers = headers

    def on_data(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_BYTES:
            self._parts.append(data)

    def on_whole(self, told: Told, body: bytes) -> None:
        self.on_head(200, told.headers)
        self.on_data(body)
        self.on_done()

    def on_done(self) -> None:
        if not self._future.done():
            self._answer.body = b"".join(self._parts)
            self._future.set_result(self._answer)

    def on_lost(self, fault: Fault) -> None:
        if not self._future.done():
            self._future.set_exception(Unreachable(fault, "while waiting for the answer"))


async def fetch(
    pool: Pool,
    method: str,
    path: str,
    *,
    timeout_s: float,
    headers: Sequence[tuple[bytes, bytes]] = (),
    body: bytes = b"",
) -> Answer:
    """Ask an engine. TimeoutError after `timeout_s`, Unreachable if it cannot be reached or breaks off.

    On cancellation the connection is closed, so the engine stops working on it.
    """
    lines = [f"{method} {path} HTTP/1.1", f"host: {pool.address.authority}", f"content-length: {len(body)}"]
    lines += [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in headers]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    async with asyncio.timeout(timeout_s):
        connection = await pool.open()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            connection.send(head, body, _Collector(future))
            return await future
        finally:
            if not future.done() or future.cancelled():
                connection.abandon()
