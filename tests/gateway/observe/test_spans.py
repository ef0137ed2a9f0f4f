from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.observe.labels import Route
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord
from gateway.observe.spans import open_spans
from gateway.observe.trace import Identifiers, begin_span
from gateway.settings.tree import Telemetry

CLIENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector(ThreadingHTTPServer):
    """Takes spans over OTLP/HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.spans: list[Span] = []
        self.paths: list[str] = []
        self.service: dict[str, str] = {}


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            raise AssertionError("not asked for")
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.service = {item.key: item.value.string_value for item in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.server.paths.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def send(collector: Collector, record: RequestRecord) -> list[Span]:
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    spans = open_spans(Telemetry(otlp_endpoint=endpoint), version="1.2.3")
    assert spans is not None
    spans.record(record)
    spans.close()
    return collector.spans


def ended(outcome: Outcome = Outcome.OK, traceparent: bytes = CLIENT) -> RequestRecord:
    return RequestRecord(
        b"req-1",
        "POST",
        Route.CHAT,
        1_000_000_000,
        model="small",
        member="a",
        version="v7",
        status=200,
        outcome=outcome,
        duration=1.5,
        prompt_tokens=7,
        completion_tokens=20,
        traceparent=traceparent,
        span_traceparent=begin_span(traceparent, Identifiers()).header(),
        path="/v1/chat/completions",
    )


def attributes(span: Span) -> dict[str, object]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in span.attributes}


def test_a_request_becomes_a_span_in_the_clients_trace(collector: Collector) -> None:
    record = ended()
    [span] = send(collector, record)
    assert collector.paths == ["/v1/traces"]
    assert collector.service["service.name"] == "changeover"
    assert span.name == "POST /v1/chat/completions"
    assert span.trace_id.hex().encode() == CLIENT[3:35]
    assert span.parent_span_id.hex().encode() == CLIENT[36:52]
    assert span.span_id.hex().encode() == record.span_traceparent[36:52]
    assert span.kind == Span.SPAN_KIND_SERVER
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000_000_000, 2_500_000_000)
    found = attributes(span)
    assert found["http.request.method"] == "POST"
    assert found["http.route"] == "/v1/chat/completions"
    assert found["http.response.status_code"] == 200
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == "small"
    assert found["gen_ai.usage.input_tokens"] == 7
    assert found["gen_ai.usage.output_tokens"] == 20
    assert found["changeover.version"] == "v7"
    assert "error.type" not in found


def test_without_a_parent_a_trace_begins(collector: Collector) -> None:
    record = ended(traceparent=b"")
    [span] = send(collector, record)
    assert span.parent_span_id == b""
    assert span.trace_id.hex().encode() == record.span_traceparent[3:35]


def test_a_span_that_the_engine_was_not_told_of_is_in_the_clients_trace_too(collector: Collector) -> None:
    record = ended()
    record.span_traceparent = b""
    [span] = send(collector, record)
    assert span.trace_id.hex().encode() == CLIENT[3:35]
    assert span.parent_span_id.hex().encode() == CLIENT[36:52]


def test_a_failure_is_marked(collector: Collector) -> None:
    [span] = send(collector, ended(Outcome.BACKEND_ERROR))
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes(span)["error.type"] == "backend_error"


def test_what_the_client_does_not_sample_is_not_sent(collector: Collector) -> None:
    assert send(collector, ended(traceparent=CLIENT[:-1] + b"0")) == []


def test_without_a_collector_nothing_is_imported() -> None:
    code = (
        "import sys\n"
        "from gateway.observe.spans import open_spans\n"
        "from gateway.settings.tree import Telemetry\n"
        "assert open_spans(Telemetry(), version='1') is None\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from gateway.observe.spans import TelemetryMissing, open_spans\n"
        "from gateway.settings.tree import Telemetry\n"
        "try: open_spans(Telemetry(otlp_endpoint='http://127.0.0.1:4318'), version='1')\n"
        "except TelemetryMissing as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'changeover[otel]'" in said
