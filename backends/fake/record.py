"""What the fake has seen: requests, connections, clients that left, and a log of what happened.

Counts are exact; what is kept (requests with headers and bodies, clients gone, log) is bounded, oldest
dropped first. Written by connections and exchanges, read by tests and `/fake/stats`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

KEPT_REQUESTS = 512
KEPT_BODY_BYTES = 64 * 1024 * 1024
"""Of all kept requests together."""
KEPT_EVENTS = 4096


@dataclass(slots=True, eq=False)
class Request:
    """A request as it was received. `body` is whole once it is handed on."""

    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    """In their order, names as they were spelt."""
    body: bytes
    connection: int
    """Number of the connection, counted from 1."""
    started_s: float
    """When it began, on the monotonic clock."""

    def header(self, name: str) -> str | None:
        """The first header of this name, whatever its case."""
        wanted = name.lower().encode()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value.decode("latin-1")
        return None

    @property
    def name(self) -> str:
        """The caller's id for it, or an empty string."""
        return self.header("x-request-id") or ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A client that closed its connection while its request was being answered."""

    path: str
    request_id: str
    after_s: float
    """Seconds since its request began."""
    at_s: float
    """When, on the monotonic clock."""
    waiting: bool
    """Whether nothing of the answer had been sent."""


@dataclass(slots=True)
class Record:
    name: str
    log: TextIO | None = None
    """Gets each event as a line of JSON."""
    requests: Counter[str] = field(default_factory=Counter)
    """By path. Unknown paths count as `other`."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Answers begun, by status."""
    in_flight: int = 0
    """Generation requests that are there as a whole and not answered to the last byte."""
    max_in_flight: int = 0
    connections_open: int = 0
    connections_total: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    gone_total: int = 0
    gone: deque[Gone] = field(default_factory=lambda: deque(maxlen=KEPT_REQUESTS))
    seen: deque[Request] = field(default_factory=deque)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    _seen_bytes: int = 0

    def began(self) -> None:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def ended(self) -> None:
        self.in_flight -= 1

    def saw(self, request: Request, known: bool) -> None:
        self.requests[request.path if known else "other"] += 1
        self.seen.append(request)
        self._seen_bytes += len(request.body)
        while len(self.seen) > KEPT_REQUESTS or self._seen_bytes > KEPT_BODY_BYTES:
            self._seen_bytes -= len(self.seen.popleft().body)

    def left(self, request: Request, waiting: bool) -> None:
        now = time.monotonic()
        gone = Gone(request.path, request.name, now - request.started_s, now, waiting)
        self.gone_total += 1
        self.gone.append(gone)
        self.note(
            "client gone",
            {
                "path": gone.path,
                "request_id": gone.request_id,
                "after_s": round(gone.after_s, 6),
                "waiting": waiting,
                "connection": request.connection,
            },
        )

    def note(self, event: str, detail: dict[str, Any] | None = None) -> None:
        """Log an event."""
        entry = {"time": datetime.now(UTC).isoformat(), "fake": self.name, "event": event, **(detail or {})}
        self.events.append(entry)
        if self.log is not None:
            self.log.write(msgspec.json.encode(entry).decode() + "\n")
            self.log.flush()

    def bodies(self, path: str) -> list[bytes]:
        """The bodies of the kept requests for this path, oldest first."""
        return [request.body for request in self.seen if request.path == path]

    def reset(self) -> None:
        """Forget everything but what is so now: open connections and requests in flight."""
        self.requests.clear()
        self.statuses.clear()
        self.gone.clear()
        self.seen.clear()
        self.events.clear()
        self._seen_bytes = 0
        self.max_in_flight = self.in_flight
        self.connections_total = self.connections_open
        self.gone_total = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "requests": dict(self.requests),
            "statuses": {str(status): count for status, count in self.statuses.items()},
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "connections": {"open": self.connections_open, "total": self.connections_total},
            "tokens": {"prompt": self.prompt_tokens, "generation": self.generation_tokens},
            "gone_total": self.gone_total,
            "gone": list(self.gone),
            "seen": [
                {
                    "method": request.method,
                    "path": request.path,
                    "query": request.query,
                    "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in request.headers],
                    "body": request.body.decode(errors="replace"),
                    "connection": request.connection,
                }
                for request in self.seen
            ],
        }
