"""The gateway's own header lines on an answer, from its client's record. Pure."""

from __future__ import annotations

from gateway.flow.record import Record
from gateway.observe.labels import CacheEvent

_CACHE = {event: event.value.encode() for event in CacheEvent}


def marks(record: Record, request_id: bytes, version: bytes, age_s: float | None = None) -> bytes:
    """`age_s`: of an answer that was kept."""
    named = b"x-model-version: %b\r\n" % version if version else b""
    aged = b"age: %d\r\n" % age_s if age_s is not None else b""
    engine_s = record.answered - record.sent if record.answered else 0.0
    return b"x-request-id: %b\r\n%b%bx-cache: %b\r\nserver-timing: queue;dur=%.1f, engine;dur=%.1f\r\n" % (
        request_id,
        named,
        aged,
        _CACHE[record.cache],
        record.queue_s * 1e3,
        engine_s * 1e3,
    )
