"""What is known of a request when it has ended: the one source of its log line and its span.

Filled by the flow as it learns more. Durations in seconds; None where there was no such thing.
Holds no prompt, no answer and no header.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.observe.labels import Route
from gateway.observe.outcome import Outcome


@dataclass(slots=True)
class RequestRecord:
    request_id: bytes
    method: str
    route: Route
    start_unix_ns: int
    """Wall clock at the request's first byte."""
    model: str = ""
    """A configured name, or what the client asked for."""
    member: str = ""
    version: str = ""
    """Of the weights that answered."""
    status: int = 0
    """0: no answer could be begun."""
    outcome: Outcome = Outcome.INTERNAL_ERROR
    duration: float = 0.0
    ttft: float | None = None
    queue: float | None = None
    overhead: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    cache: str = ""
    """hit, miss, join or bypass."""
    stream: bool = False
    client: str = ""
    """Address of the client."""
    tenant: str = ""
    error: str = ""
    """What went wrong, if anything."""
    traceparent: bytes = b""
    """As it came."""
    span_traceparent: bytes = b""
    """As it was sent to the engine, where telemetry is on."""
    path: str = ""
    """The route as it is declared, such as `/v1/completions`; never what the client wrote."""
