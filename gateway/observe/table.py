"""Every metric of the gateway, in one table.

A family says its name (without the prefix), what it measures, its labels and how the values of several
workers become one. The last label may be closed (`values`): then one block of cells holds one cell for
each value. Families of members and of versions vanish with what they name; all others last as long as the
gateway.
To add a metric, add a row here and count it in `gateway.observe.metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gateway.fleet.states import State
from gateway.observe.labels import (
    Attempt,
    CacheEvent,
    ConnectionState,
    Continued,
    Refusal,
    Reload,
    RetryReason,
    RolloutEnd,
    SwapWay,
    TokenKind,
)
from gateway.observe.outcome import Outcome
from gateway.observe.window import CELLS

PREFIX = "changeover_"


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    WINDOW = "window"
    """Not shown itself: the last 60 s, from which QPS and quantiles are computed."""


class Combine(Enum):
    """How the gauges of several workers become one. Counters and histograms are always summed."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The values of the last label, where they are known beforehand."""
    buckets: tuple[float, ...] = ()
    """Upper edges, ascending, without infinity."""
    combine: Combine = Combine.SUM

    @property
    def open_labels(self) -> tuple[str, ...]:
        """The labels that name a block of cells."""
        return self.labels[:-1] if self.values else self.labels

    @property
    def width(self) -> int:
        """Cells of one block, its tag not counted: histograms hold the counts by bucket, then the sum."""
        if self.kind is Kind.WINDOW:
            return CELLS
        if self.kind is Kind.HISTOGRAM:
            return len(self.buckets) + 2
        return len(self.values) or 1

    @property
    def passing(self) -> bool:
        """Whether its series go with what they name: a member, or a model's version."""
        return "model" in self.labels and ("member" in self.labels or "version" in self.labels)


# An edge at 0.5 s (the usual objective), at most 1.2 times apart around ten minutes, up to half an hour.
DURATION_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 15.0),
    *(20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 525.0, 570.0),
    *(600.0, 640.0, 700.0, 900.0, 1200.0, 1800.0),
)
TTFT_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(1.5, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
QUEUE_BUCKETS = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
OVERHEAD_BUCKETS = (
    *(50e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
CHUNK_BUCKETS = (
    *(0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05),
    *(0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Finer than those above: what is compared is a candidate with what it would replace.
VERSION_BUCKETS = tuple(float(f"{0.001 * 10 ** (step / 8):.3g}") for step in range(51))
ANSWER_BUCKETS = tuple(float(2**power) for power in range(17))
SWAP_BUCKETS = (
    *(0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0),
    *(300.0, 600.0, 900.0, 1800.0),
)
BATCH_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


def _counter(name: str, text: str, *labels: str, values: type[Enum] | None = None) -> Family:
    closed = tuple(str(member.value) for member in values) if values else ()
    return Family(name, Kind.COUNTER, text, labels, closed)


def _gauge(
    name: str,
    text: str,
    *labels: str,
    values: tuple[str, ...] = (),
    combine: Combine = Combine.SUM,
) -> Family:
    return Family(name, Kind.GAUGE, text, labels, values, combine=combine)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(name, Kind.HISTOGRAM, text, labels, buckets=buckets)


REQUESTS = _counter(
    "requests_total", "Requests that ended, by how they ended.", "model", "route", "outcome", values=Outcome
)
DURATION = _histogram(
    "request_duration_seconds",
    "From the request's first byte to the answer's last.",
    DURATION_BUCKETS,
    "model",
    "route",
)
TTFT = _histogram(
    "ttft_seconds",
    "From the request's first byte to the first byte of the engine's answer.",
    TTFT_BUCKETS,
    "model",
    "route",
)
QUEUE = _histogram(
    "queue_seconds", "Time requests waited to be admitted or for a member.", QUEUE_BUCKETS, "model"
)
OVERHEAD = _histogram(
    "overhead_seconds", "Time spent in the gateway itself, waiting left out.", OVERHEAD_BUCKETS, "model"
)
INTER_CHUNK = _histogram("inter_chunk_seconds", "Time between two reads of a stream.", CHUNK_BUCKETS, "model")
TOKENS = _counter("tokens_total", "Tokens, as the engines report them.", "model", "kind", values=TokenKind)
IN_FLIGHT = _gauge("in_flight", "Requests that have begun and not ended.", "model")
QUEUED = _gauge("queued", "Requests that wait to be admitted or for a member.", "model")
REFUSED = _counter(
    "refused_total", "Requests not admitted, by the limit they hit.", "model", "reason", values=Refusal
)
RETRIES = _counter(
    "retries_total",
    "Further tries of requests, by what made them necessary.",
    "model",
    "reason",
    values=RetryReason,
)
CONTINUATIONS = _counter(
    "continuations_total",
    "Streams whose engine had gone, by what became of them.",
    "model",
    "outcome",
    values=Continued,
)
RETRY_BUDGET = _counter(
    "retry_budget_exhausted_total", "Retries not made because the budget was spent.", "model"
)
ATTEMPTS = _counter(
    "upstream_attempts_total",
    "Calls of a member, retries included, by how they ended.",
    *("model", "member", "result"),
    values=Attempt,
)
MEMBER_STATE = _gauge(
    "member_state",
    "1 for the state a member is in, as any worker sees it.",
    *("model", "member", "state"),
    values=tuple(state for state in State if state is not State.GONE),
    combine=Combine.MAX,
)
MEMBER_IN_FLIGHT = _gauge("member_in_flight", "Requests leased on a member.", "model", "member")
CONNECTIONS = _gauge(
    "upstream_connections",
    "Connections to a member.",
    *("model", "member", "state"),
    values=tuple(ConnectionState),
)
LOAD_ERRORS = _counter(
    "backend_load_endpoint_errors_total", "Failed reads of a member's own load metrics.", "model", "member"
)
OPEN_CONNECTIONS = _gauge("open_connections", "Client connections that are open.")
CACHE = _counter(
    "cache_events_total", "What the cache did for requests.", "model", "event", values=CacheEvent
)
CACHE_BYTES = _gauge("cache_bytes", "Bytes of answers kept in memory.")
CACHE_ENTRIES = _gauge("cache_entries", "Answers kept in memory.")
BATCH_SIZE = _histogram("batch_size", "Prompts in one engine call.", BATCH_BUCKETS, "model")
VERSION_REQUESTS = _counter(
    "version_requests_total",
    "Requests that ended, by the weights that answered them or should have.",
    *("model", "version", "outcome"),
    values=Outcome,
)
VERSION_FAULTS = _counter(
    "version_faults_total", "Calls that ended by the member's fault, by its weights.", "model", "version"
)
VERSION_DURATION = _histogram(
    "version_duration_seconds",
    "Duration of requests that were computed to the end.",
    VERSION_BUCKETS,
    *("model", "version"),
)
VERSION_TTFT = _histogram(
    "version_ttft_seconds",
    "The same requests, to the first byte of the engine's answer.",
    VERSION_BUCKETS,
    *("model", "version"),
)
VERSION_LENGTH = _histogram(
    "version_answer_tokens",
    "Tokens of each answer that was computed to the end, as the engine reports them.",
    ANSWER_BUCKETS,
    *("model", "version"),
)
VERSION_PROMPT = _counter("version_prompt_tokens_total", "Tokens of their prompts.", "model", "version")
TAKEOVERS = _counter(
    "version_takeovers_total",
    "Requests that went to the other version because the one that was due had no member in rotation.",
    "model",
)
ROLLOUT_ACTIVE = _gauge("rollout_active", "1 while a rollout is under way.", "model", combine=Combine.MAX)
ROLLOUT_OUTCOMES = _counter(
    "rollout_outcomes_total", "Rollouts by how they ended.", "model", "outcome", values=RolloutEnd
)
SWAP_SECONDS = _histogram(
    "swap_seconds", "A member's change to other weights, from order to end.", SWAP_BUCKETS, "model", "way"
)
SWAP_FAILURES = _counter(
    "swap_failures_total", "Members' changes that did not succeed.", "model", "way", values=SwapWay
)
MEMBERS_BY_VERSION = _gauge(
    "members_by_version", "Members by the weights they serve.", "model", "version", combine=Combine.MAX
)
PARITY_K3 = _gauge(
    "parity_k3",
    "KL divergence (k3) of an engine from the trainer when the version was probed last.",
    *("model", "version"),
    combine=Combine.MAX,
)
PARITY_MEAN = _gauge(
    "parity_mean_abs_delta_logprob",
    "Mean difference of log-probabilities from the trainer's when the version was probed last.",
    *("model", "version"),
    combine=Combine.MAX,
)
RELOADS = _counter("config_reloads_total", "Times the configuration was read again.", "result", values=Reload)
LAST_RELOAD = _gauge(
    "config_last_reload_timestamp_seconds",
    "Unix time at which the present configuration was taken.",
    combine=Combine.MAX,
)
LAG = _histogram("event_loop_lag_seconds", "How late the event loop runs what is due.", LAG_BUCKETS)
TASK_FAILURES = _counter("task_failures_total", "Background tasks that ended in an unexpected error.")
LOGS_DROPPED = _counter("log_lines_dropped_total", "Log lines lost because nobody read the output.")
BUILD = _gauge("build_info", "1, with what runs here as labels.", "version", "python", combine=Combine.MAX)

# Not shown as it is: `gateway.observe.derived` makes gauges of it.
WINDOW = Family("window", Kind.WINDOW, "The last 60 s on an inference route.", ("route",))

FAMILIES: tuple[Family, ...] = (
    *(REQUESTS, DURATION, TTFT, QUEUE, OVERHEAD, INTER_CHUNK, TOKENS, IN_FLIGHT, QUEUED, REFUSED),
    *(
        RETRIES,
        CONTINUATIONS,
        RETRY_BUDGET,
        ATTEMPTS,
        MEMBER_STATE,
        MEMBER_IN_FLIGHT,
        CONNECTIONS,
        LOAD_ERRORS,
    ),
    *(OPEN_CONNECTIONS, CACHE, CACHE_BYTES, CACHE_ENTRIES, BATCH_SIZE, RELOADS, LAST_RELOAD, LAG),
    *(VERSION_REQUESTS, VERSION_FAULTS, VERSION_DURATION, VERSION_TTFT, VERSION_LENGTH, VERSION_PROMPT),
    *(ROLLOUT_ACTIVE, ROLLOUT_OUTCOMES, SWAP_SECONDS, SWAP_FAILURES, MEMBERS_BY_VERSION, PARITY_K3),
    *(PARITY_MEAN, TAKEOVERS, TASK_FAILURES, LOGS_DROPPED, BUILD, WINDOW),
)

# Computed when asked for, from the above and from the kernel.
MEMBERS = _gauge("members", "Members by state.", "model", "state")
WORKERS = _gauge("workers", "Gateway processes that run.")
QPS = _gauge("qps", "Requests a second over the last 60 s.")
LATENCY = _gauge("latency_seconds", "Duration of the requests of the last 60 s.", "quantile")
ROUTE_QPS = _gauge("route_qps", "Requests a second over the last 60 s, by route.", "route")
ROUTE_LATENCY = _gauge(
    "route_latency_seconds", "Duration of the requests of the last 60 s, by route.", "route", "quantile"
)
PROCESS_CPU = _counter("process_cpu_seconds_total", "User and system time of a worker.", "worker")
PROCESS_MEMORY = _gauge("process_resident_memory_bytes", "Memory of a worker.", "worker")
PROCESS_FILES = _gauge("process_open_fds", "Open files of a worker.", "worker")
PROCESS_START = _gauge("process_start_time_seconds", "Unix time at which a worker began.", "worker")

DERIVED: tuple[Family, ...] = (
    *(MEMBERS, WORKERS, QPS, LATENCY, ROUTE_QPS, ROUTE_LATENCY),
    *(PROCESS_CPU, PROCESS_MEMORY, PROCESS_FILES, PROCESS_START),
)
