"""Counting for everything the gateway does: series resolved once, then cheap.

`Metrics` belongs to one worker process. The hot path asks once per (model, route) for a `RequestSeries`
and once per member for a `MemberSeries`, and then only adds to cells. Labels are closed sets: unknown
models become `other`, members are those the fleet names. What exists: `gateway.observe.table`.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Iterable, Sequence

from gateway.observe import table
from gateway.observe.booking import Ended, observe
from gateway.observe.cells import Cells
from gateway.observe.handles import Choice, Counter, Gauge, Histogram
from gateway.observe.labels import INFERENCE, OTHER_MODEL, Route, TokenKind
from gateway.observe.outcome import REFUSALS, Outcome
from gateway.observe.rollouts import RolloutSeries
from gateway.observe.table import DURATION_BUCKETS as DURATION_EDGES
from gateway.observe.table import OVERHEAD_BUCKETS as OVERHEAD_EDGES
from gateway.observe.table import QUEUE_BUCKETS as QUEUE_EDGES
from gateway.observe.table import TTFT_BUCKETS as TTFT_EDGES
from gateway.observe.versions import VersionBook
from gateway.observe.window import EDGES as WINDOW_EDGES
from gateway.observe.window import REFUSED, WindowWriter


class ModelSeries:
    """The series of one model in this worker."""

    def __init__(self, cells: Cells, name: str) -> None:
        labels = (name,)
        self.name = name
        self.in_flight = Gauge(cells, table.IN_FLIGHT, labels)
        """Kept by `RequestSeries`."""
        self.queued = Gauge(cells, table.QUEUED, labels)
        self.queue = Histogram(cells, table.QUEUE, labels)
        """Kept by `RequestSeries`."""
        self.overhead = Histogram(cells, table.OVERHEAD, labels)
        """Kept by `RequestSeries`."""
        self.inter_chunk = Histogram(cells, table.INTER_CHUNK, labels)
        self.batch_size = Histogram(cells, table.BATCH_SIZE, labels)
        self.refused = Choice(cells, table.REFUSED, labels)
        """By `Refusal`."""
        self.retries = Choice(cells, table.RETRIES, labels)
        """By `RetryReason`."""
        self.continuations = Choice(cells, table.CONTINUATIONS, labels)
        """By `Continued`."""
        self.retry_budget_exhausted = Counter(cells, table.RETRY_BUDGET, labels)
        self.cache = Choice(cells, table.CACHE, labels)
        """By `CacheEvent`."""
        self.takeovers = Counter(cells, table.TAKEOVERS, labels)
        self.versions = VersionBook(cells, name)
        self._tokens = Choice(cells, table.TOKENS, labels)
        self._values = cells.values
        self._prompt_tokens = self._tokens.place(TokenKind.PROMPT)
        self._completion_tokens = self._tokens.place(TokenKind.COMPLETION)

    def book(self, records: Sequence[Ended]) -> None:
        """Count tokens, as the engines reported them, and requests by the weights that answered."""
        computed = [record for record in records if record.computed]
        values = self._values
        values[self._prompt_tokens] += sum(record.prompt_tokens for record in computed)
        values[self._completion_tokens] += sum(record.completion_tokens for record in computed)
        for version in {record.version for record in records} - {""}:
            self.versions.of(version).book([record for record in records if record.version == version])

    def close(self, cells: Cells) -> None:
        """The model is no longer served: its series go."""
        for handle in (
            *(self.in_flight, self.queued, self.queue, self.overhead, self.inter_chunk, self.batch_size),
            *(self.refused, self.retries, self.retry_budget_exhausted, self.cache, self._tokens),
            *(self.takeovers, self.continuations),
        ):
            handle.close(cells)
        self.versions.close()


class RequestSeries:
    """The series of one model on one route. Each request calls `begin` once, and is put into `ended` once."""

    __slots__ = (
        "_duration",
        "_in_flight",
        "_opened",
        "_outcomes",
        "_overhead",
        "_queue",
        "_ttft",
        "_values",
        "_window",
        "ended",
        "model",
        "route",
    )

    def __init__(self, cells: Cells, model: ModelSeries, route: Route, ring: WindowWriter) -> None:
        self._values = cells.values
        self.model = model
        self.route = route
        counts = cells.open(table.REQUESTS, (model.name, route))
        self._outcomes = {Outcome(value): counts + i for i, value in enumerate(table.REQUESTS.values)}
        # What was asked of no model of ours was not served: its durations by route would say nothing.
        timed = (model.name, Route.OTHER if model.name == OTHER_MODEL else route)
        self._duration = cells.open(table.DURATION, timed)
        self._ttft = cells.open(table.TTFT, timed)
        self._opened = (counts, self._duration, self._ttft)
        self._in_flight = model.in_flight.index
        self._queue = model.queue.index
        self._overhead = model.overhead.index
        self._window = ring
        self.ended: list[Ended] = []
        """Requests that have ended and are not counted yet: whoever ends one puts it here."""

    def begin(self) -> None:
        """A request has been read."""
        self._values[self._in_flight] += 1.0

    def book(self) -> None:
        """Count what has ended since the last time."""
        records = self.ended
        if not records:
            return
        self.ended = []
        values = self._values
        values[self._in_flight] -= len(records)
        for outcome, count in Counts(record.outcome for record in records).items():
            values[self._outcomes[outcome]] += count
        self._book_window(records)
        durations = [record.ended - record.started for record in records]
        observe(values, self._duration, DURATION_EDGES, durations)
        ttfts = [record.first - record.started for record in records if record.first]
        observe(values, self._ttft, TTFT_EDGES, ttfts)
        waits = [record.admitted - record.started for record in records if record.admitted]
        observe(values, self._queue, QUEUE_EDGES, waits)
        overheads = [record.overhead_s() for record in records if record.admitted]
        observe(values, self._overhead, OVERHEAD_EDGES, overheads)
        self.model.book(records)

    def _book_window(self, records: Sequence[Ended]) -> None:
        values, ring = self._values, self._window
        now = records[-1].ended
        if now >= ring.until:
            ring.turn(now)
        base = ring.base
        for record in records:
            refused = record.outcome in REFUSALS
            place = REFUSED if refused else bisect_left(WINDOW_EDGES, record.ended - record.started)
            values[base + place] += 1.0

    def close(self, cells: Cells) -> None:
        """The model is no longer served: its series go."""
        for index in self._opened:
            cells.close(index)


class MemberSeries:
    """The series of one member in this worker. `close` when the member has left."""

    def __init__(self, cells: Cells, model: str, member: str) -> None:
        labels = (model, member)
        self._cells = cells
        self._state = Choice(cells, table.MEMBER_STATE, labels)
        self.in_flight = Gauge(cells, table.MEMBER_IN_FLIGHT, labels)
        self.attempts = Choice(cells, table.ATTEMPTS, labels)
        """By `Attempt`."""
        self.connections = Choice(cells, table.CONNECTIONS, labels)
        """By `ConnectionState`; a gauge."""
        self.load_errors = Counter(cells, table.LOAD_ERRORS, labels)
        self._closed = False

    def state(self, state: str) -> None:
        """The member is now in this state (a value of `gateway.fleet.states.State`)."""
        self._state.select(state)

    def close(self) -> None:
        """The member has left: its series go. Nothing may be counted on it afterwards. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for handle in (self._state, self.in_flight, self.attempts, self.connections, self.load_errors):
            handle.close(self._cells)


class Metrics:
    """All series of one worker."""

    def __init__(self, cells: Cells, models: Iterable[str], *, version: str) -> None:
        """`models`: the configured names. `version`: the gateway's own."""
        self._cells = cells
        self._rings = {
            route: WindowWriter(cells.values, cells.open(table.WINDOW, (route,)))
            for route in (*INFERENCE, Route.OTHER)
        }
        self._models: dict[str, ModelSeries] = {}
        self._requests: dict[tuple[str, Route], RequestSeries] = {}
        self.open_connections = Gauge(cells, table.OPEN_CONNECTIONS)
        self.cache_bytes = Gauge(cells, table.CACHE_BYTES)
        self.cache_entries = Gauge(cells, table.CACHE_ENTRIES)
        self.reloads = Choice(cells, table.RELOADS)
        """By `Reload`."""
        self.last_reload = Gauge(cells, table.LAST_RELOAD)
        """Unix time in seconds."""
        self.lag = Histogram(cells, table.LAG)
        self.task_failures = Counter(cells, table.TASK_FAILURES)
        self.log_lines_dropped = Counter(cells, table.LOGS_DROPPED)
        Gauge(cells, table.BUILD, (version, platform.python_version())).set(1.0)
        self.set_models(models)
        # All at once, so that nothing a client invents makes a series appear.
        for route in Route:
            self.request_series(OTHER_MODEL, route)

    def set_models(self, names: Iterable[str]) -> None:
        """These models are served from now on; the series of all others go.

        Series that were handed out for a model that goes must not be used afterwards.
        """
        self.book()
        wanted = {*names, OTHER_MODEL}
        for name in [name for name in self._models if name not in wanted]:
            for key in [key for key in self._requests if key[0] == name]:
                self._requests.pop(key).close(self._cells)
            self._models.pop(name).close(self._cells)
        for name in sorted(wanted - self._models.keys()):
            self._models[name] = ModelSeries(self._cells, name)

    def model(self, name: str) -> ModelSeries:
        """The series of a model; those of `other` if it is not configured."""
        return self._models.get(name) or self._models[OTHER_MODEL]

    def book(self) -> None:
        """Count every request that has ended; some times a second, and before anybody reads."""
        for series in self._requests.values():
            series.book()

    def request_series(self, model: str, route: Route) -> RequestSeries:
        """The series of a model on a route; those of `other` for a model that is not configured."""
        found = self._requests.get((model, route))
        if found is not None:
            return found
        series = self.model(model)
        if series.name != model:
            return self._requests[OTHER_MODEL, route]
        ring = self._rings.get(route) or self._rings[Route.OTHER]
        found = self._requests[model, route] = RequestSeries(self._cells, series, route, ring)
        return found

    def rollout_series(self, model: str) -> RolloutSeries:
        """New series for a model's rollouts; the caller closes them."""
        return RolloutSeries(self._cells, self.model(model).name)

    def member_series(self, model: str, member: str) -> MemberSeries:
        """New series for a member that the fleet has taken up; the caller closes them when it leaves."""
        return MemberSeries(self._cells, self.model(model).name, member)
