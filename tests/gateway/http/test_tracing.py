"""With telemetry the engine's spans are children of the gateway's own; without it traces pass through."""

from __future__ import annotations

from gateway.observe.trace import parse_traceparent
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually
from tests.gateways import fakes, gateway_to

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
COLLECTOR = {"otlp_endpoint": "http://127.0.0.1:9"}


async def told(telemetry: dict[str, str], headers: list[tuple[str, str]]) -> tuple[list[str], bytes, bytes]:
    """The traceparents that the engine got, and the record's: as it came, as it was sent."""
    async with fakes(1) as (fake,), gateway_to(fake, telemetry=telemetry) as gateway:
        await ask(gateway.url, "/predict", {"prompt": "Hello"}, headers=headers)
        await eventually(lambda: bool(gateway.records))
        (request,) = [seen for seen in fake.stats.seen if seen.path == "/v1/completions"]
        sent = [value.decode() for name, value in request.headers if name.lower() == b"traceparent"]
        record = gateway.records[-1]
        return sent, record.traceparent, record.span_traceparent


async def test_without_telemetry_a_trace_passes_through() -> None:
    assert await told({}, [("traceparent", PARENT)]) == ([PARENT], PARENT.encode(), b"")


async def test_with_telemetry_the_engine_gets_a_child_of_the_clients_span() -> None:
    sent, came, span = await told(COLLECTOR, [("traceparent", PARENT)])

    assert came == PARENT.encode()
    assert sent == [span.decode()]
    ours, theirs = parse_traceparent(span), parse_traceparent(came)
    assert ours is not None
    assert theirs is not None
    assert ours.trace_id == theirs.trace_id
    assert ours.span_id != theirs.span_id


async def test_with_telemetry_a_request_without_a_trace_begins_one() -> None:
    sent, came, span = await told(COLLECTOR, [])

    assert came == b""
    assert sent == [span.decode()]
    assert parse_traceparent(span) is not None
