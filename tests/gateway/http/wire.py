"""A real Exchange on a connection that only keeps what is written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.http.edge import Edge
from gateway.http.exchange import Exchange
from gateway.http.protocol import EdgeProtocol
from gateway.http.routes import BY_PATH
from gateway.upstream.headers import Headers
from tests.drivers.framing import Data, End, Head, ResponseParser
from tests.drivers.sse import Event, EventParser


class Wire:
    """Stands where a connection's protocol stands."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.client = ("192.0.2.1", 1)
        self.flow = SimpleNamespace(write_paused=False)
        self.transport = self
        self.edge = Edge(
            handle=lambda exchange: None,
            routes=BY_PATH,
            max_body_bytes=1024,
            max_connections=1,
            max_buffered_bytes=1024,
            header_timeout_s=1,
            keep_alive_s=1,
        )

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after the end"
        self.sent += data

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.write(b"".join(parts))

    def answered(self, exchange: Exchange) -> None:
        pass

    def cut(self) -> None:
        self.closed = True

    def exchange(
        self, path: str = "/v1/completions", headers: Headers | None = None, *, old_http: bool = False
    ) -> Exchange:
        """A request on this connection."""
        return Exchange(
            cast("EdgeProtocol", self),
            BY_PATH[path.encode()],
            headers or [],
            received=False,
            old_http=old_http,
            keep_alive=not old_http,
        )

    # What a client would have read

    def _parts(self) -> list[Any]:
        parser = ResponseParser()
        parts: list[Any] = list(parser.feed(self.sent))
        return parts

    @property
    def head(self) -> Head:
        return next(part for part in self._parts() if isinstance(part, Head))

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def content(self) -> bytes:
        return b"".join(part.content for part in self._parts() if isinstance(part, Data))

    @property
    def ended(self) -> bool:
        """Whether the answer ended as an HTTP message should."""
        return any(isinstance(part, End) for part in self._parts())

    @property
    def events(self) -> list[Event]:
        return EventParser().feed(self.content, 0.0)

    @property
    def data(self) -> list[str]:
        return [event.data for event in self.events]
