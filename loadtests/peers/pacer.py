"""Upstreams that stream: an event on every open stream at each tick, made beforehand.

    python -m loadtests.peers.pacer --every-ms 2 PORT [PORT …]

Cheap enough (a write an event) to leave the core that it shares with the listener far from full.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import httptools
import uvloop

from loadtests.peers.configs import MODELS

EVENT = (
    b'data: {"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"text":" city","logprobs":null,"finish_reason":null,"stop_reason":null}],'
    b'"usage":null}\n\n'
)
"""As vLLM writes one."""
CHUNK = f"{len(EVENT):x}\r\n".encode() + EVENT + b"\r\n"
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _plain(body: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


class Stream(asyncio.Protocol):
    """One connection: plain answers to GET, a stream without end to POST."""

    def __init__(self, streams: set[asyncio.Transport]) -> None:
        self._streams = streams
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._streams.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"POST":
            self._transport.write(HEAD)
            self._streams.add(self._transport)
        else:
            self._transport.write(_plain(MODELS if self._url.endswith(b"/models") else "{}"))


async def serve(ports: list[int], every_s: float) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    streams: set[asyncio.Transport] = set()
    for port in ports:
        await loop.create_server(lambda: Stream(streams), "127.0.0.1", port, backlog=2048)
    due = loop.time()
    while True:
        due = max(due + every_s, loop.time())
        await asyncio.sleep(due - loop.time())
        for transport in tuple(streams):
            transport.write(CHUNK)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers.pacer")
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--every-ms", type=float, default=2.0)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.ports, arguments.every_ms / 1000))


if __name__ == "__main__":
    main()
