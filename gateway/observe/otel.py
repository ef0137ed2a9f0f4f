"""Requests as OpenTelemetry spans, sent over OTLP/HTTP from a thread of their own.

Names of attributes: OpenTelemetry semantic conventions for HTTP and GenAI; ours begin with `changeover.`.
Import it through `gateway.observe.spans`: the SDK is an optional extra.
"""

from __future__ import annotations

import threading
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from gateway.observe.labels import Route
from gateway.observe.outcome import REFUSALS, Outcome
from gateway.observe.record import RequestRecord
from gateway.observe.trace import Identifiers, TraceContext, begin_span, parse_traceparent

MAX_WAITING = 4096
"""Spans that wait for the collector; more are dropped."""
EXPORT_TIMEOUT_S = 5.0

_OPERATIONS = {
    Route.PREDICT: "text_completion",
    Route.COMPLETIONS: "text_completion",
    Route.CHAT: "chat",
    Route.EMBEDDINGS: "embeddings",
    Route.RESPONSES: "chat",
}


class _GivenIds(IdGenerator):
    """Ids were drawn when the request began; the SDK asks for them when the span is made."""

    def __init__(self) -> None:
        self.span = TraceContext(b"", b"", sampled=True)

    def generate_span_id(self) -> int:
        return int(self.span.span_id, 16)

    def generate_trace_id(self) -> int:
        return int(self.span.trace_id, 16)


class OtelSpans:
    """A `Spans`. Not thread-safe; the exporter's thread is its own."""

    def __init__(self, endpoint: str, *, version: str) -> None:
        """`endpoint`: the collector's URL; without a path, `/v1/traces` is meant."""
        if not urlsplit(endpoint).path.strip("/"):
            endpoint = endpoint.rstrip("/") + "/v1/traces"
        self._identifiers = Identifiers()
        self._ids = _GivenIds()
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON),
            resource=Resource.create({"service.name": "changeover", "service.version": version}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=MAX_WAITING, schedule_delay_millis=1000)
        )
        self._tracer = self._provider.get_tracer("changeover.gateway", version)

    def record(self, record: RequestRecord) -> None:
        # Without a span that the engine was told of, one is begun now.
        self._ids.span = parse_traceparent(record.span_traceparent) or begin_span(
            record.traceparent, self._identifiers
        )
        span = self._tracer.start_span(
            f"{record.method} {record.path or record.route.value}",
            context=_parent(record.traceparent),
            kind=SpanKind.SERVER,
            attributes=attributes(record),
            start_time=record.start_unix_ns,
        )
        if record.outcome is not Outcome.OK and record.outcome not in REFUSALS:
            span.set_status(Status(StatusCode.ERROR, record.outcome.value))
        span.end(record.start_unix_ns + int(record.duration * 1e9))

    def close(self, timeout_s: float = 3.0) -> None:
        closer = threading.Thread(target=self._provider.shutdown, name="otel-close", daemon=True)
        closer.start()
        closer.join(timeout_s)


def _parent(traceparent: bytes) -> otel_context.Context:
    parent = parse_traceparent(traceparent)
    if parent is None:
        return otel_context.Context()
    remote = SpanContext(
        trace_id=int(parent.trace_id, 16),
        span_id=int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parent.sampled)),
    )
    return otel_trace.set_span_in_context(NonRecordingSpan(remote), otel_context.Context())


def attributes(record: RequestRecord) -> dict[str, AttributeValue]:
    """What a span says of a request; what is empty is left out."""
    error = "" if record.outcome is Outcome.OK else record.outcome.value
    found: dict[str, AttributeValue | None] = {
        "http.request.method": record.method,
        "http.route": record.path or record.route.value,
        "http.response.status_code": record.status or None,
        "client.address": record.client,
        "error.type": error,
        "gen_ai.provider.name": "vllm",
        "gen_ai.operation.name": _OPERATIONS.get(record.route),
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model if record.member else "",
        "gen_ai.usage.input_tokens": record.prompt_tokens or None,
        "gen_ai.usage.output_tokens": record.completion_tokens or None,
        "changeover.request_id": record.request_id.decode("latin-1"),
        "changeover.outcome": record.outcome.value,
        "changeover.member": record.member,
        "changeover.version": record.version,
        "changeover.cache": record.cache,
        "changeover.stream": record.stream,
        "changeover.retries": record.retries or None,
        "changeover.ttft": record.ttft,
        "changeover.queue": record.queue,
        "changeover.overhead": record.overhead,
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}
