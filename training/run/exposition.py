"""The metrics of `training.metrics.TABLE`, counted in this process and served over HTTP."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from training.metrics import TABLE, Kind

log = logging.getLogger(__name__)


class Metrics:
    """One value for each row of the table. Thread-safe, as prometheus_client's are.

    A gauge that was never set is not shown, so that nobody takes a missing value for a zero.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._help = {row.name: row.help for row in TABLE if row.kind is Kind.GAUGE}
        for row in TABLE:
            if row.kind is Kind.COUNTER:
                self._counters[row.name] = Counter(row.full_name, row.help, registry=self.registry)
        self._names = {row.name: row.full_name for row in TABLE}

    def set(self, name: str, value: float) -> None:
        """Set a gauge. Raises KeyError for a name that the table has not."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(self._names[name], self._help[name], registry=self.registry)
        self._gauges[name].set(value)

    def add(self, name: str, amount: float = 1.0) -> None:
        """Add to a counter. Raises KeyError for a name that the table has not."""
        self._counters[name].inc(amount)


class Exposition:
    """The HTTP server; a context that ends it. A port that is taken is told, and a free one used."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        try:
            server, thread = start_http_server(port, addr=host, registry=metrics.registry)
        except OSError as error:
            server, thread = start_http_server(0, addr=host, registry=metrics.registry)
            log.warning("metrics.port %d cannot be used (%s)", port, error.strerror)
        self.port = int(server.server_port)
        self._server = server
        self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
