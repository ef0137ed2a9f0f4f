"""Opens streams through a gateway, counts their events, and what they cost the gateway.

    python -m loadtests.peers.listener --port N --pid PID --streams 64 --seconds 3

Prints JSON: events, seconds, the processor seconds of PID and its children meanwhile, open streams.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import msgspec
import uvloop

from loadtests.processes import tree_cpu_s
from loadtests.wire import post

MARK = b"data:"
OPENING_S = 15.0
"""Longest time until every stream has given something."""
SETTLE_S = 0.3
"""From then until counting begins."""


class Counted(msgspec.Struct, frozen=True):
    """One measurement."""

    events: int
    seconds: float
    cpu_s: float
    streams: int
    """Those that were open at the end."""

    @property
    def cpu_per_event_s(self) -> float:
        return self.cpu_s / self.events if self.events else float("nan")


class Listener(asyncio.Protocol):
    """One stream; only counts."""

    def __init__(self, request: bytes, begun: asyncio.Semaphore) -> None:
        self._request = request
        self._begun = begun
        """Released at the stream's first bytes."""
        self.events = 0
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.open:
            self.open = True
            self._begun.release()
        self.events += data.count(MARK)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False

    def leave(self) -> None:
        self._transport.abort()


async def listen(port: int, pid: int, streams: int, seconds: float, request: bytes) -> Counted:
    """Open, settle, count, leave."""
    loop = asyncio.get_running_loop()
    begun = asyncio.Semaphore(0)
    listeners = []
    for _ in range(streams):
        _, listener = await loop.create_connection(lambda: Listener(request, begun), "127.0.0.1", port)
        listeners.append(listener)
    try:
        async with asyncio.timeout(OPENING_S):
            for _ in listeners:
                await begun.acquire()
    except TimeoutError:
        pass  # told by the streams that are open at the end
    await asyncio.sleep(SETTLE_S)
    cpu, start, events = tree_cpu_s(pid), loop.time(), sum(listener.events for listener in listeners)
    await asyncio.sleep(seconds)
    counted = Counted(
        events=sum(listener.events for listener in listeners) - events,
        seconds=loop.time() - start,
        cpu_s=tree_cpu_s(pid) - cpu,
        streams=sum(listener.open for listener in listeners),
    )
    for listener in listeners:
        listener.leave()
    return counted


REQUEST = b'{"model":"m","prompt":"The capital of France is","max_tokens":20000,"stream":true}'


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers.listener")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    request = post("/v1/completions", REQUEST)
    counted = uvloop.run(listen(given.port, given.pid, given.streams, given.seconds, request))
    print(msgspec.json.encode(counted).decode())


if __name__ == "__main__":
    main()
