"""An engine that is well when asked and answers work with whatever bytes it was given.

Each answer carries the nonce of the request it belongs to in place of NONCE, whatever else is broken about
it: an answer with another's nonce has gone to the wrong client.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

NONCE = b"nonce-XXXXXX"
"""As long as what replaces it, so that lengths stay true."""
NONCES = re.compile(rb"nonce-\d{6}")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Script:
    """What is sent for one request; after that the connection is closed, or kept."""

    pieces: tuple[bytes, ...]
    close: bool


def plain(body: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json") -> bytes:
    """A response with its length."""
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\nx-model-version: v\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        kind,
        len(body),
        body,
    )


def chunked(parts: list[bytes], kind: bytes = b"text/event-stream") -> bytes:
    """A response in chunks."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@asynccontextmanager
async def liar(script_for: Callable[[bytes], Script]) -> AsyncIterator[str]:
    """Its URL. `script_for` is asked once for each request, with the request's nonce."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await _answer(reader, writer, script_for):
                pass
        writers.discard(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in tuple(writers):
            writer.transport.abort()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script_for: Callable[[bytes], Script]
) -> bool:
    """One request and its answer; whether the connection goes on."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    body = await reader.readexactly(int(length[1])) if length else b""
    if head.startswith(b"GET /v1/models"):
        writer.write(plain(b'{"object":"list","data":[{"id":"m","object":"model"}]}'))
    elif head.startswith(b"GET"):
        writer.write(plain(b""))
    else:
        asked = NONCES.search(body)
        nonce = asked[0] if asked else b"nonce-000000"
        script = script_for(nonce)
        for piece in script.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return not script.close
    await writer.drain()
    return True
