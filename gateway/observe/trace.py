"""Request ids, W3C trace context and Server-Timing: pure, on bytes as they stand in headers.

Without telemetry the gateway takes no part in a trace: it hands `traceparent` on as it came. With it, the
engine gets the gateway's own span as parent. Sources: W3C Trace Context level 2, W3C Server Timing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

REQUEST_ID_MAX = 128
"""Longest request id that is taken from a client."""

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
# A later version may append fields; version ff and ids of zeros are void.
_TRACEPARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_BATCH = 128
"""Identifiers' worth of randomness that is drawn at a time."""


class Identifiers:
    """Draws random identifiers in lower-case hex, several at a time. Not thread-safe."""

    __slots__ = ("_drawn",)

    def __init__(self) -> None:
        self._drawn: list[bytes] = []

    def request_id(self) -> bytes:
        """16 random bytes: 32 digits. Also fit for a trace id."""
        if not self._drawn:
            digits = os.urandom(16 * _BATCH).hex().encode()
            self._drawn = [digits[start : start + 32] for start in range(0, len(digits), 32)]
        return self._drawn.pop()

    def span_id(self) -> bytes:
        """8 random bytes: 16 digits."""
        return self.request_id()[:16]


def sane_request_id(offered: bytes | None) -> bytes | None:
    """The client's own id, if it is 1 to 128 visible ASCII characters; else None."""
    return offered if offered is not None and _REQUEST_ID.fullmatch(offered) else None


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One position in a trace: the span that is the parent of whatever comes next."""

    trace_id: bytes
    """32 hex digits."""
    span_id: bytes
    """16 hex digits."""
    sampled: bool

    def header(self) -> bytes:
        """The value of `traceparent`."""
        return b"00-%b-%b-%b" % (self.trace_id, self.span_id, b"01" if self.sampled else b"00")

    def child(self, identifiers: Identifiers) -> TraceContext:
        """A new span of the same trace."""
        return TraceContext(self.trace_id, identifiers.span_id(), self.sampled)


def parse_traceparent(value: bytes) -> TraceContext | None:
    """Read a `traceparent` header; None if it is void, and is then to be treated as absent."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags = match.groups()
    if version == b"00" and len(value) != 55:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


def new_trace(identifiers: Identifiers) -> TraceContext:
    """A trace that begins here."""
    return TraceContext(identifiers.request_id(), identifiers.span_id(), sampled=True)


def begin_span(traceparent: bytes, identifiers: Identifiers) -> TraceContext:
    """The position of a new span: in the client's trace if it names one, else in a new trace."""
    parent = parse_traceparent(traceparent) if traceparent else None
    return parent.child(identifiers) if parent is not None else new_trace(identifiers)


def server_timing(total: float, queue: float, engine: float, overhead: float) -> bytes:
    """The value of `Server-Timing`: what a request's time went into. Seconds in, milliseconds out.

    `total` until the header is written, `queue` waiting to be admitted or for a member, `engine` from
    sending to the first byte of the answer, `overhead` in the gateway itself.
    """
    return b"total;dur=%.2f, queue;dur=%.2f, engine;dur=%.2f, gateway;dur=%.2f" % (
        total * 1e3,
        queue * 1e3,
        engine * 1e3,
        overhead * 1e3,
    )
