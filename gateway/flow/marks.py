"""The gateway's own header lines on an answer, from its client's record. Pure."""

from __future__ import annotations

from gateway.flow.record import Record
from gateway.observe.labels import CacheEvent

_CACHE = {event: event.value.encode() for event in CacheEvent}

_SHORT = tuple(b"%d.%d" % divmod(tenths, 10) for tenths in range(1000))
"""Milliseconds below 100 as they are written, by tenths: most are, and formatting a float is slow."""


def marks(record: Record, request_id: bytes, version: bytes, age_s: float | None = None) -> bytes:
    """`age_s`: of an answer that was kept."""
    engine_s = record.answered - record.sent if record.answered else 0.0
    return b"".join(
        (
            b"x-request-id: ",
            request_id,
            b"\r\nx-model-version: " if version else b"",
            version,
            b"\r\nage: %d" % age_s if age_s is not None else b"",
            b"\r\nx-cache: ",
            _CACHE[record.cache],
            b"\r\nserver-timing: queue;dur=",
            _milliseconds(record.queue_s()),
            b", engine;dur=",
            _milliseconds(engine_s),
            b"\r\n",
        )
    )


def _milliseconds(seconds: float) -> bytes:
    tenths = int(seconds * 1e4 + 0.5)
    return _SHORT[tenths] if tenths < 1000 else b"%d.%d" % divmod(tenths, 10)
