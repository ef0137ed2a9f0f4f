"""Clients that are slow: that send byte by byte, read a little at a time, or stop reading."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.drivers.raw import Peer, Response, connected
from tests.drivers.waiting import paced

SMALL_BUFFER = 4_096
"""Receive buffer of a client that does not read: the kernel takes its minimum."""


async def send_slowly(peer: Peer, asked: bytes, piece: int = 1, gap_s: float = 0.0) -> None:
    """Send in pieces, each in a write (and with Nagle off in a packet) of its own."""
    for at in range(0, len(asked), piece):
        await peer.send(asked[at : at + piece])
        await paced(gap_s)


async def ask_slowly(url: str, asked: bytes, piece: int = 1, gap_s: float = 0.0) -> Response:
    """Send in pieces and read the response as it comes."""
    async with connected(url) as peer:
        await send_slowly(peer, asked, piece, gap_s)
        return await peer.response()


@asynccontextmanager
async def not_reading(url: str, asked: bytes) -> AsyncIterator[Peer]:
    """A client that has sent its request and reads nothing, with as small buffers as can be had.

    To go on reading, use the peer.
    """
    async with connected(url, receive_buffer=SMALL_BUFFER) as peer:
        await peer.send(asked)
        yield peer


async def read_slowly(peer: Peer, bytes_per_s: float, most: int, piece: int = 256) -> int:
    """Read at this speed until `most` bytes or the end; returns how many."""
    read = 0
    while read < most:
        data = await peer.receive(min(piece, most - read))
        if not data:
            break
        read += len(data)
        await paced(len(data) / bytes_per_s)
    return read
