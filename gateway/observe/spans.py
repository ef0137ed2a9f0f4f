"""Spans for OpenTelemetry, when the settings name a collector. Without them nothing of it is imported.

A span is made from a request's record when the request has ended; only its ids are needed before, for the
engine's `traceparent`. The SDK is an optional extra: `gateway.observe.otel` is imported only here.
"""

from __future__ import annotations

from typing import Protocol

from gateway.observe.record import RequestRecord
from gateway.settings.tree import Telemetry


class TelemetryMissing(RuntimeError):
    """Telemetry is configured, but the packages for it are not installed."""


class Spans(Protocol):
    def record(self, record: RequestRecord) -> None:
        """Hand over a request that has ended; never waits.

        `span_traceparent` (from `trace.begin_span`) names the span, where the engine was told of it.
        """

    def close(self, timeout_s: float = 3.0) -> None:
        """Send what is left, for at most `timeout_s`. Blocks: call it off the loop."""


def open_spans(settings: Telemetry, *, version: str) -> Spans | None:
    """Connect to the collector; None if none is configured.

    Raises TelemetryMissing if one is but the SDK is not installed. An absent collector is no error.
    """
    if settings.otlp_endpoint is None:
        return None
    try:
        from gateway.observe.otel import OtelSpans
    except ImportError as error:
        raise TelemetryMissing(
            "telemetry.otlp_endpoint is set, but OpenTelemetry is not installed: "
            "pip install 'changeover[otel]', or remove the setting"
        ) from error
    return OtelSpans(settings.otlp_endpoint, version=version)
