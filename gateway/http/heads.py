"""Heads of requests: their limits, and the forms that a client may write them in. Pure code."""

from __future__ import annotations

import httptools

from gateway.errors import BadRequest, HeadTooLarge
from gateway.upstream.connection import Headers

MAX_LINES = 256
"""Header lines of one request."""

MAX_BYTES = 64 * 1024
"""Request line and headers together."""


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
