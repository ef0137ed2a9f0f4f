"""Heads of requests: their limits, the forms that clients write them in, and those that came before. Pure."""

from __future__ import annotations

import httptools
import msgspec

from gateway.errors import BadRequest, HeadTooLarge
from gateway.http.routes import HotRoute
from gateway.upstream.headers import Asked, Headers

MAX_LINES = 256
"""Header lines of one request."""

MAX_BYTES = 64 * 1024
"""Request line and headers together."""


MAX_KNOWN = 2048
MAX_KNOWN_BYTES = 2048
"""Heads that are remembered, and how long one may be: 4 MiB at most."""


class Known(msgspec.Struct, frozen=True, eq=False):
    """What a head says of a hot request: HTTP/1.1, kept alive, no invitation wanted."""

    route: HotRoute
    headers: Headers
    query: bytes
    asked: Asked
    length: int
    """Bytes of the body."""


class KnownHeads(dict[bytes, Known]):
    """Heads that came before, byte for byte: a client that sends many requests hardly varies them.

    Only the parser fills it, from requests that came in one read: a head, then exactly as many bytes as it
    announces. In what is kept every line ends in CRLF, so the parser saw the head end where `find` does.
    The same bytes on a connection that is between two requests mean the same to it again. Bounded: when it
    is full it begins anew. To be cleared when what is asked of heads changes.
    """

    def learn(self, data: bytes, known: Known) -> None:
        """A request came in one read."""
        end = data.find(b"\r\n\r\n") + 4
        head = data[:end]
        if (
            known.length == len(data) - end
            and end <= MAX_KNOWN_BYTES
            and head.count(b"\n") == head.count(b"\r\n")
            # Those that carry a name of their own come only once.
            and not (known.asked.request_id or known.asked.traceparent)
        ):
            if len(self) >= MAX_KNOWN:
                self.clear()
            self[head] = known


def too_large() -> HeadTooLarge:
    limits = f"{MAX_BYTES} bytes and {MAX_LINES} lines"
    return HeadTooLarge(f"The request's head is over the limit of {limits}; send less in headers.")


def size(url: bytes, headers: Headers) -> int:
    """How much of `MAX_BYTES` a head takes."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def origin_form(url: bytes) -> bytes:
    """Path and query of a request target in absolute form (RFC 9112, 3.2.2). Raises BadRequest."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError as error:
        raise BadRequest("The request's target is no path and no URL.") from error
    path = bytes(parsed.path or b"/")
    return b"%b?%b" % (path, parsed.query) if parsed.query else path


def without_offer(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """The head once more, without its offer to change to another protocol (RFC 9110, 7.8).

    A server may ignore such an offer, but httptools leaves out the body of a request that makes one.
    """
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        if name == b"upgrade":
            continue
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            value = b", ".join(option for option in options if option.lower() != b"upgrade")
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"
