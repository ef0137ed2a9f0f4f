"""A name server for one test: says which addresses a name has, and what it says can change.

Answers A records over UDP (RFC 1035), as much of it as a resolver needs.
A name without addresses does not exist.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

_A, _INTERNET, _TTL_S = 1, 1, 1
_ANSWER, _NO_SUCH_NAME = 0x8180, 0x8183


@dataclass(slots=True)
class Names:
    port: int = 0
    addresses: dict[str, list[str]] = field(default_factory=dict)
    """IPv4 addresses by lower-case name."""
    asked: int = 0

    def answer(self, query: bytes) -> bytes:
        """The reply to one query of one question."""
        self.asked += 1
        labels, end = [], 12
        while (length := query[end]) > 0:
            labels.append(query[end + 1 : end + 1 + length].decode())
            end += 1 + length
        question = query[12 : end + 5]
        kind = struct.unpack("!H", question[-4:-2])[0]
        known = self.addresses.get(".".join(labels).lower(), [])
        found = [ipaddress.IPv4Address(text).packed for text in known] if kind == _A else []
        flags = _ANSWER if known else _NO_SUCH_NAME
        head = query[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0)
        records = [struct.pack("!HHHIH", 0xC00C, _A, _INTERNET, _TTL_S, 4) + packed for packed in found]
        return head + question + b"".join(records)


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, names: Names) -> None:
        self._names = names

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(self._names.answer(data), addr)


@asynccontextmanager
async def names(**addresses: list[str]) -> AsyncIterator[Names]:
    """On a free port of 127.0.0.1 until the end of the block."""
    known = Names(addresses=dict(addresses))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(known), ("127.0.0.1", 0))
    known.port = transport.get_extra_info("sockname")[1]
    try:
        yield known
    finally:
        transport.close()
