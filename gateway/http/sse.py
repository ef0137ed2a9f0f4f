"""Server-sent events as bytes: where an event ends, and the few events that the gateway writes itself.

The format is WHATWG's (HTML standard, 9.2). Nothing here parses an event: streams are forwarded as
they come, cut only between events. Pure code.
"""

from __future__ import annotations

import msgspec

from gateway.errors import GatewayError

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": keep-alive\n\n"

MAX_HELD = 64 * 1024
"""A partial event above this size is sent on as it comes."""


def boundary(data: bytes) -> int:
    """The index just behind the last whole event in `data`, 0 if there is none."""
    if data.endswith(b"\n\n"):
        return len(data)
    end = 0
    for mark in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        at = data.rfind(mark)
        if at >= 0:
            end = max(end, at + len(mark))
    return end


def event(payload: object) -> bytes:
    """One event with a JSON payload, on one line whatever it holds."""
    return b"data: %b\n\n" % msgspec.json.encode(payload)


def error_event(error: GatewayError) -> bytes:
    """The event that ends a broken stream: the error in OpenAI's shape."""
    return b"data: %b\n\n" % error.body()


def rejection_event(status: int, body: bytes) -> bytes:
    """The event for an engine's own refusal of a stream that has already begun."""
    try:
        payload = msgspec.json.decode(body)
    except msgspec.DecodeError:
        payload = None
    error = payload.get("error") if isinstance(payload, dict) else None
    if isinstance(error, dict):
        return event(payload)
    message = error if isinstance(error, str) else body.decode("utf-8", "replace")[:2000]
    error = {
        "message": message or f"The engine answered with status {status}.",
        "type": "backend_error",
        "param": None,
        "code": status,
    }
    return event({"error": error})
