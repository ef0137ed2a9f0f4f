"""The end of a request: its one record becomes metrics, a log line and a span."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.flow.record import Record
from gateway.http.exchange import Exchange
from gateway.observe.labels import Route
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord

Sink = Callable[[RequestRecord], None]


@dataclass(slots=True)
class Account:
    """Closes the books of requests."""

    metrics: Metrics
    sinks: tuple[Sink, ...] = ()
    """Who wants each record: the log, the trace."""

    def begin(self, model: str, route: Route) -> None:
        """Count a request that begins; `close` must follow."""
        self.metrics.request_series(model, route).begin()

    def close(self, record: Record, exchange: Exchange) -> None:
        """Count a request that has ended. `record.outcome` is set."""
        outcome = record.outcome
        assert outcome is not None
        series = self.metrics.request_series(record.model, record.route)
        series.finish(
            outcome,
            record.ended,
            record.duration_s,
            ttft=record.first - record.started if record.first else None,
            queue=record.queue_s if record.admitted else None,
            overhead=record.overhead_s,
        )
        if record.completion_tokens or record.prompt_tokens:
            series.model.tokens(record.prompt_tokens, record.completion_tokens)
        if self.sinks:
            self._tell(record, exchange, outcome)

    def _tell(self, record: Record, exchange: Exchange, outcome: Outcome) -> None:
        told = RequestRecord(
            record.request_id,
            "POST",
            record.route,
            time.time_ns() - int(record.duration_s * 1e9),
            model=record.model,
            member=record.member,
            version=record.version,
            status=exchange.status,
            outcome=outcome,
            duration=record.duration_s,
            ttft=record.first - record.started if record.first else None,
            queue=record.queue_s if record.admitted else None,
            overhead=record.overhead_s,
            prompt_tokens=record.prompt_tokens,
            completion_tokens=record.completion_tokens,
            retries=max(0, record.tries - 1),
            cache="bypass",
            stream=record.stream,
            client=exchange.client,
            tenant=record.tenant,
            error=record.error,
            traceparent=record.traceparent,
        )
        for sink in self.sinks:
            sink(told)
