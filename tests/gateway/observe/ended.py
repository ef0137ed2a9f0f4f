"""Records of requests that have ended, with the times that a test wants."""

from __future__ import annotations

from gateway.flow.record import Record
from gateway.observe.labels import Route
from gateway.observe.metrics import RequestSeries
from gateway.observe.outcome import Outcome


def ended(
    outcome: Outcome,
    now: float,
    duration: float,
    *,
    ttft: float | None = None,
    queue: float | None = None,
    overhead: float | None = None,
    version: str = "",
    prompt: int = 0,
    completion: int = 0,
) -> Record:
    """It ended at `now`. `queue` None: it was never admitted. `overhead` only with a queue."""
    record = Record(Route.PREDICT, "m", now - duration)
    record.ended, record.outcome, record.version = now, outcome, version
    record.prompt_tokens, record.completion_tokens = prompt, completion
    if ttft is not None:
        record.first = record.started + ttft
    if queue is not None:
        record.admitted = record.started + queue
    if overhead is not None:
        record.sent, record.last = record.admitted, now - overhead
    return record


def book(series: RequestSeries, outcome: Outcome, now: float, duration: float, **times: float) -> None:
    """Count one request that has ended."""
    series.ended.append(ended(outcome, now, duration, **times))  # type: ignore[arg-type]
    series.book()
