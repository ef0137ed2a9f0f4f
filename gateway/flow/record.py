"""One record for each request: what metrics, the log line, the trace and `Server-Timing` derive from.

Times are seconds of the monotonic clock; 0 means "did not happen". What is derived are methods: on Python
3.11 a property costs several times as much as a call.
"""

from __future__ import annotations

from gateway.observe.labels import CacheEvent, Route
from gateway.observe.outcome import Outcome


class Record:
    """Defaults stand in the class, so that a request pays only for what it sets."""

    admitted: float = 0.0
    """It may go to an engine."""
    sent: float = 0.0
    """The last attempt's request was written."""
    answered: float = 0.0
    """The engine's head came."""
    first: float = 0.0
    """The first byte of the engine's body came."""
    last: float = 0.0
    """The engine's last byte came."""
    ended: float = 0.0
    outcome: Outcome | None = None
    status: int = 0
    """What the client was told; 0: nothing."""
    member: str = ""
    version: str = ""
    tries: int = 0
    """Attempts at engines."""
    cache: CacheEvent = CacheEvent.BYPASS
    """hit, miss, join or bypass."""
    changed: bool = False
    """Its member began to serve other weights between the choice of it and its answer."""
    computed: bool = True
    """Whether an engine worked for it: not for a hit, and not for those who join."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""
    """For people: what went wrong."""

    def __init__(self, route: Route, model: str, started: float) -> None:
        self.route = route
        self.model = model
        self.started = started
        """The request was whole."""

    def __repr__(self) -> str:
        return f"<Record {self.route} {self.model} {self.outcome or 'open'} status={self.status}>"

    def queue_s(self) -> float:
        return (self.admitted or self.ended or self.started) - self.started

    def duration_s(self) -> float:
        return self.ended - self.started

    def overhead_s(self) -> float:
        """Time in the gateway itself: neither waiting to be admitted nor with the engine."""
        engine = (self.last or self.ended) - self.sent if self.sent else 0.0
        overhead = self.ended - (self.admitted or self.ended) - engine
        return overhead if overhead > 0 else 0.0
