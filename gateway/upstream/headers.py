"""Header lines on their way through: one pass in each direction.

Hop-by-hop headers (RFC 9110, 7.6.1) end here, those that `Connection` names too. What the gateway
speaks for itself (framing, its own marks) is never taken from the other side. Pure code.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values as they came."""

_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)

_NOT_FORWARDED = _HOP | {
    b"host",
    b"content-length",
    b"content-encoding",
    b"expect",
    b"authorization",
    b"api-key",
    b"x-request-id",
    b"x-request-timeout",
    b"x-model-version",
    b"x-model-version-min",
}
"""Never reaches an engine from a client: framing, keys of this gateway, and marks that only we may set."""

_OURS = b"x-changeover-"
"""Nor does anything that begins so: gateway and backends talk to each other in such headers."""

_ORDINARY = frozenset((b"keep-alive", b"close", b"Keep-Alive", b"Close"))
"""What a Connection header mostly says, which names no other header."""

_ABOUT_BODIES = frozenset((b"content-type", b"accept", b"accept-encoding"))

_NOT_RETURNED = _HOP | {
    b"date",
    b"server",
    b"content-length",
    b"x-request-id",
    b"x-model-version",
    b"x-cache",
    b"x-changeover-elsewhere",
}


_END_LINES = tuple(b"content-length: %d\r\n\r\n" % length for length in range(2048))
"""Of small bodies, 150 KiB of them: looking one up takes a quarter of the time that writing it does."""


def end_of_head(length: int) -> bytes:
    """The last lines of a head: how long the body is, and the empty one."""
    return _END_LINES[length] if length < 2048 else b"content-length: %d\r\n\r\n" % length


_READ = {
    b"authorization": "authorization",
    b"cache-control": "cache_control",
    b"content-encoding": "content_encoding",
    b"traceparent": "traceparent",
    b"x-request-id": "request_id",
    b"x-request-timeout": "timeout",
    b"x-model-version": "version",
    b"x-model-version-min": "least",
}
"""Request headers that the gateway reads itself, and where their values go."""


@dataclass(slots=True)
class Asked:
    """What a request's headers say to the gateway, and the lines that go on to the engine."""

    block: bytes = b""
    authorization: bytes = b""
    content_encoding: bytes = b""
    request_id: bytes = b""
    timeout: bytes = b""
    traceparent: bytes = b""
    cache_control: bytes = b""
    version: bytes = b""
    least: bytes = b""
    session: bytes = b""


def read_request(
    headers: Headers, *, session_headers: frozenset[bytes] = frozenset(), own_body: bool = False
) -> Asked:
    """One pass over a request's headers.

    `own_body`: the gateway writes the body and reads the answer itself, so it also says what they are.
    """
    asked = Asked()
    lines: list[bytes] = []
    named: list[bytes] = []
    for name, value in headers:
        if name in _READ:
            setattr(asked, _READ[name], value)
        elif name == b"connection":
            if value not in _ORDINARY:
                named += _tokens(value)
        elif name in session_headers:
            asked.session = value
        if (
            name not in _NOT_FORWARDED
            and not name.startswith(_OURS)
            and not (own_body and name in _ABOUT_BODIES)
        ):
            lines.append(name + b": " + value + b"\r\n")
    if asked.content_encoding:
        asked.content_encoding = asked.content_encoding.strip().lower()
    asked.block = _without(lines, named)
    if own_body:
        asked.block += b"content-type: application/json\r\n"
    return asked


def _tokens(value: bytes) -> list[bytes]:
    """The names in a Connection header, but for those that every connection knows."""
    tokens = (token.strip().lower() for token in value.split(b","))
    return [token for token in tokens if token not in (b"keep-alive", b"close", b"")]


def _without(lines: list[bytes], named: list[bytes]) -> bytes:
    if named:
        lines = [line for line in lines if line.partition(b":")[0] not in named]
    return b"".join(lines)


_TOLD = frozenset(
    (
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"x-changeover-elsewhere",
        b"x-model-version",
    )
)
"""Answer headers that the gateway reads itself."""


_PLAIN = (b"", b"identity")


class Told(msgspec.Struct, frozen=True):
    """What an answer's headers say to the gateway, and the lines that go on to the client."""

    block: bytes = b""
    length: int | None = None
    version: bytes = b""
    elsewhere: bytes = b""
    """The guard's mark for "leaving, not broken"."""
    content_type: bytes = b""
    content_encoding: bytes = b""
    headers: Headers = []
    """All of them, as they came."""

    @property
    def streams(self) -> bool:
        """Whether its body is events that can be read."""
        return self.content_type.startswith(b"text/event-stream") and self.content_encoding in _PLAIN

    def by(self, version: bytes) -> Told:
        """The same, said by an engine that serves these weights without saying so."""
        return Told(
            self.block,
            self.length,
            version,
            self.elsewhere,
            self.content_type,
            self.content_encoding,
            self.headers,
        )


def read_answer(headers: Headers) -> Told:
    """One pass over an answer's headers."""
    length: int | None = None
    version = elsewhere = content_type = content_encoding = b""
    lines: list[bytes] = []
    named: list[bytes] = []
    for name, value in headers:
        if name in _TOLD:
            if name == b"content-type":
                content_type = value
            elif name == b"content-length":
                length = int(value)
            elif name == b"x-model-version":
                version = value
            elif name == b"content-encoding":
                content_encoding = value.strip().lower()
            elif name == b"x-changeover-elsewhere":
                elsewhere = value
            elif value not in _ORDINARY:
                named += _tokens(value)
        if name not in _NOT_RETURNED:
            lines.append(name + b": " + value + b"\r\n")
    block = _without(lines, named)
    return Told(block, length, version, elsewhere, content_type, content_encoding, headers)
