"""What all connections of one worker share: its routes and limits, and what they hold together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.errors import GatewayError
from gateway.http.exchange import Exchange
from gateway.http.heads import KnownHeads
from gateway.http.routes import HotRoute
from gateway.upstream.headers import Headers

_CORS_BLOCK = (
    b"vary: Origin\r\n"
    b"access-control-expose-headers: x-request-id, x-model-version, x-cache, server-timing\r\n"
)


class Swept(Protocol):
    """A connection."""

    def sweep(self, now: float) -> None:
        """Close if it is idle, slow to send, or lingering."""


@dataclass(slots=True)
class Edge:
    """What all connections of one worker share."""

    handle: Callable[[Exchange], None]
    """Gets each hot request when it is whole. Must not raise."""
    routes: Mapping[bytes, HotRoute]
    """Hot routes by exact path; POST only."""
    max_body_bytes: int
    max_connections: int
    max_buffered_bytes: int
    """Request bodies held in memory at a time, over all connections."""
    header_timeout_s: float
    keep_alive_s: float
    cors_origins: frozenset[bytes] = frozenset()
    connections: set[Swept] = field(default_factory=set)
    buffered: int = 0
    known: KnownHeads = field(default_factory=KnownHeads)
    date_block: bytes = b""
    leaving: bool = False
    """Going down: every answer closes its connection."""
    early: Callable[[Exchange, GatewayError], None] = lambda exchange, error: exchange.fail(error)
    """Answers (and accounts for) a request that is refused before it was read whole."""

    def cors_block(self, headers: Headers) -> bytes:
        """The CORS lines for an answer to a request with these headers."""
        for name, value in headers:
            if name == b"origin" and (value in self.cors_origins or b"*" in self.cors_origins):
                return b"access-control-allow-origin: %b\r\n%b" % (value, _CORS_BLOCK)
        return b""

    def sweep(self, now: float) -> None:
        """Close connections that are idle, slow to send, or lingering. Once a second."""
        for protocol in tuple(self.connections):
            protocol.sweep(now)
