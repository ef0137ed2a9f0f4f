"""The end of a request: its one record becomes metrics, a log line and a span."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.http.exchange import Exchange
from gateway.observe.metrics import RequestSeries
from gateway.observe.record import RequestRecord

Sink = Callable[[RequestRecord], None]


class Account:
    """Closes the books of requests."""

    def __init__(self, sinks: tuple[Sink, ...] = ()) -> None:
        """`sinks`: who wants each record, the log and the trace."""
        self._sinks = sinks

    def close(
        self, series: RequestSeries, record: Record, exchange: Exchange, request: Request | None = None
    ) -> None:
        """A request has ended. `record.outcome` is set, `series.begin` was called."""
        series.ended.append(record)
        if self._sinks:
            self._tell(record, exchange, request)

    def _tell(self, record: Record, exchange: Exchange, request: Request | None) -> None:
        outcome = record.outcome
        assert outcome is not None
        told = RequestRecord(
            exchange.request_id,
            "POST",
            record.route,
            time.time_ns() - int(record.duration_s() * 1e9),
            model=record.model,
            member=record.member,
            version=record.version,
            status=exchange.status,
            outcome=outcome,
            duration=record.duration_s(),
            ttft=record.first - record.started if record.first else None,
            queue=record.queue_s() if record.admitted else None,
            overhead=record.overhead_s(),
            prompt_tokens=record.prompt_tokens,
            completion_tokens=record.completion_tokens,
            retries=max(0, record.tries - 1),
            cache=record.cache,
            client=exchange.client,
            error=record.error,
            path=exchange.route.path.decode(),
        )
        if request is not None:
            told.stream = request.stream
            told.tenant = request.tenant
            told.traceparent = request.traceparent
            told.span_traceparent = request.span
        for sink in self._sinks:
            sink(told)
