"""Several requests on one connection at a time, and their responses in order."""

from __future__ import annotations

from collections.abc import Sequence

from tests.drivers.framing import Data, End, Head, ResponseParser
from tests.drivers.raw import Peer, Response


async def responses(peer: Peer, methods: Sequence[str]) -> list[Response]:
    """The responses to requests with these methods. Raises what `Peer.response` raises."""
    found: list[Response] = []
    waiting = b""
    for method in methods:
        response, waiting = await _one(peer, method, waiting)
        found.append(response)
    assert not waiting, f"bytes after the last response: {waiting[:80]!r}"
    return found


async def _one(peer: Peer, method: str, waiting: bytes) -> tuple[Response, bytes]:
    parser = ResponseParser(method)
    interim: list[Head] = []
    head: Head | None = None
    body = bytearray()
    raw = bytearray()
    while True:
        if not waiting:
            waiting = await peer.receive()
            if not waiting:
                parser.eof()
        # Byte by byte: whatever follows belongs to the next response.
        taken, waiting = waiting[:1], waiting[1:]
        raw += taken
        for part in parser.feed(taken) if taken else ():
            match part:
                case Head() if part.status < 200:
                    interim.append(part)
                case Head():
                    head = part
                case Data():
                    body += part.content
                case End():
                    assert head is not None
                    return Response(head, bytes(body), tuple(interim), part.keep_alive, bytes(raw)), waiting
