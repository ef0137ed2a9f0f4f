"""A client that leaves: in the middle of its request, while it waits, or in the middle of the answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from tests.drivers.framing import Data, ResponseParser
from tests.drivers.raw import Peer, connected
from tests.drivers.sse import EventParser


class How(Enum):
    CLOSE = auto()
    """In order (FIN)."""
    RESET = auto()
    """RST."""


@dataclass(frozen=True, slots=True)
class AfterBytes:
    """After so many bytes of the request were sent."""

    count: int


@dataclass(frozen=True, slots=True)
class WhileWaiting:
    """When this returns; the request was sent whole and nothing is read."""

    until: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class AfterEvents:
    """After so many events of the stream; 0: after the head."""

    count: int


When = AfterBytes | WhileWaiting | AfterEvents


@dataclass(frozen=True, slots=True)
class Left:
    at_s: float
    """When, on the monotonic clock."""
    received: bytes
    """Everything until then, head included."""


async def leave(url: str, asked: bytes, when: When, how: How = How.CLOSE) -> Left:
    """Send the request and leave at that point. Returns when the client has left."""
    async with connected(url) as peer:
        if isinstance(when, AfterBytes):
            await peer.send(asked[: when.count])
        else:
            await peer.send(asked)
        if isinstance(when, WhileWaiting):
            await when.until()
        elif isinstance(when, AfterEvents):
            await _read_events(peer, when.count)
        if how is How.RESET:
            peer.reset()
        else:
            peer.close()
        return Left(time.monotonic(), bytes(peer.received))


async def _read_events(peer: Peer, count: int) -> None:
    parser, events = ResponseParser(), EventParser()
    seen = -1
    while seen < count:
        data = await peer.receive()
        assert data, f"the stream ended before event {count}"
        for part in parser.feed(data):
            seen = max(seen, 0)
            if isinstance(part, Data):
                seen += len(events.feed(part.content, 0.0))
