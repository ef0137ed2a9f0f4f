"""The settings tree: every option of the gateway, its type, default and meaning.

Frozen pydantic models. Units are in the names (`_s` seconds, `_bytes`, `_tokens`).
Docstrings of the fields are the documentation of the options. Loading is `gateway.settings.load`;
what single values must look like is `gateway.settings.values`; which of them contradict each other
is said here, beside the options concerned.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from backends.settings import Checkpoints, EngineSettings, Section
from gateway.settings.rollout import Rollout
from gateway.settings.values import (
    CacheUrl,
    Contradictions,
    EngineUrl,
    HeaderName,
    HttpUrl,
    KeyDigest,
    Name,
    Password,
    RunDirectory,
    WebOrigin,
    lower,
    switch,
)


class Cors(Section):
    """What browsers may do."""

    origins: tuple[WebOrigin, ...] = ()
    """Origins that browsers may call from; `*` for any. None: no CORS headers."""
    max_age_s: int = Field(default=600, ge=0)
    """How long a browser may remember a preflight answer."""


class Server(Section):
    """The listening side."""

    host: str = Field(default="0.0.0.0", min_length=1)
    """Address to listen on; `127.0.0.1` for this machine only."""
    port: int = Field(default=8000, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    workers: int = Field(default=1, ge=1, le=64)
    """Gateway processes that share the port."""
    keep_alive_s: float = Field(default=75, gt=0)
    """Idle time after which a client's connection is closed. Longer than the proxy's (nginx: 60 s)."""
    max_body_bytes: int = Field(default=20 * 1024 * 1024, ge=1024)
    """Largest request body, after decompression."""
    max_connections: int = Field(default=20_000, ge=1)
    """Open client connections of one worker; more are refused with 503."""
    header_timeout_s: float = Field(default=30, gt=0)
    """Time a client has to send a request's head and body once it has begun."""
    settle_s: float = Field(default=5, ge=0)
    """After SIGTERM: time in which readiness is 503 and requests are still answered: balancers forget us."""
    drain_s: float = Field(default=60, ge=0)
    """After that: time for requests in flight to end."""
    cors: Cors = Cors()


class Admin(Section):
    """Routes for operators."""

    token: Password | None = None
    """Bearer token for `/admin/*`. None: those routes answer 404."""
    control_token: Password | None = None
    """Token of the agents' control ports on other machines. Those of this machine make their own."""


class PolicyName(StrEnum):
    ROUND_ROBIN = "round_robin"
    LEAST_LOAD = "least_load"
    POWER_OF_TWO = "power_of_two"
    PREFIX = "prefix"
    SESSION = "session"


class Routing(Section):
    """Which member gets a request."""

    policy: Annotated[PolicyName, BeforeValidator(lower)] = PolicyName.LEAST_LOAD
    """`round_robin`, `least_load` (requests and tokens in flight), `power_of_two`, `prefix` (the prompt's
    beginning decides) or `session`."""
    load_factor: float = Field(default=1.25, ge=1)
    """`prefix` and `session`: a member is passed over above this multiple of the mean load (plus one)."""
    prefix_chars: int = Field(default=1024, ge=16)
    """`prefix`: how much of the prompt's beginning decides."""
    session_header: HeaderName = "x-session-id"
    """`session`: header that names the session."""
    session_key: str = "user"
    """`session`: body key that names it where the header is absent."""


class Endpoint(Section):
    """An engine that runs elsewhere: plain `vllm serve` works."""

    url: EngineUrl
    """`http://host:port`, `unix:/path`, `dns://name:port` for all addresses of a name, looked up again, or
    `kubernetes://service.namespace:port` for those of a Service, watched (extra `kubernetes`)."""
    api_key: Password | None = None
    """Sent to the engine as `Authorization: Bearer`."""
    control: HttpUrl | None = None
    """Where the agent beside the engine listens (`changeover backend --control-listen`). None: its weights
    are never changed."""
    control_port: int | None = Field(default=None, ge=1, le=65535)
    """The same for all addresses of a `dns://` or `kubernetes://` name."""
    weight: float = Field(default=1.0, gt=0)
    """Relative capacity."""


def _endpoint(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


EndpointList = tuple[Annotated[Endpoint, BeforeValidator(_endpoint)], ...]


class Limits(Section):
    """Admission, per model and worker."""

    max_in_flight: int = Field(default=2048, ge=1)
    """Requests with the engines at a time."""
    max_tokens_in_flight: int = Field(default=4_000_000, ge=1)
    """Estimated tokens (prompt plus `max_tokens`) with the engines at a time."""
    max_in_flight_per_member: int = Field(default=512, ge=1)
    """Requests with one engine at a time."""
    max_queued: int = Field(default=4096, ge=0)
    """Requests that may wait for one of these, or for a ready engine."""
    max_queue_s: float = Field(default=30, ge=0)
    """Longest such wait."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            if found.given("max_queued", "max_queue_s") and self.max_queued > 0 and self.max_queue_s == 0:
                found.add(
                    "`max_queued` lets requests wait and `max_queue_s: 0` forbids it",
                    "max_queue_s",
                    "max_queued",
                )
        return self


class Timeouts(Section):
    """Four limits that differ: a long answer is not a slow one."""

    connect_s: float = Field(default=2, gt=0)
    """To connect to an engine."""
    first_byte_s: float = Field(default=120, gt=0)
    """Streams: from sending the request to the first byte of the answer."""
    silence_s: float = Field(default=60, gt=0)
    """Streams: between two reads."""
    total_s: float = Field(default=600, gt=0)
    """The whole request, queueing included. A request may ask for less (`x-request-timeout`, in seconds)."""
    stream_total_s: float = Field(default=3600, gt=0)
    """The same for a stream."""
    heartbeat_s: float = Field(default=15, gt=0)
    """Silence on a stream after which the client gets a comment line, so that proxies keep it open."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            found.at_most("heartbeat_s", "silence_s", "the stream is given up before its first heartbeat")
            found.at_most("connect_s", "total_s", "the request ends before it may have connected")
            found.at_most("first_byte_s", "stream_total_s", "the stream ends before its first byte may come")
            found.at_most("silence_s", "stream_total_s", "the stream ends before it may have been silent")
        return self


class Health(Section):
    """How members come and go."""

    interval_s: float = Field(default=2, gt=0)
    """Between two probes of a member."""
    timeout_s: float = Field(default=2, gt=0)
    """For one probe."""
    unhealthy_after: int = Field(default=3, ge=1)
    """Failed probes in a row that eject a member."""
    healthy_after: int = Field(default=2, ge=1)
    """Successful probes in a row that bring an ejected one back."""
    traffic_failures: int = Field(default=5, ge=1)
    """Failures in a row of the backend's own making (refused, reset, 502, 503, first-byte timeout) that open
    its breaker."""
    breaker_open_s: float = Field(default=5, gt=0)
    """First time a breaker stays open; doubles up to `breaker_max_s`."""
    breaker_max_s: float = Field(default=30, gt=0)
    """Longest time a breaker stays open."""
    stall_s: float = Field(default=20, gt=0)
    """An engine whose token counters stand still this long while requests run is ejected."""
    resolve_s: float = Field(default=5, gt=0)
    """Between two look-ups of a DNS endpoint."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            found.at_most("breaker_open_s", "breaker_max_s", "a breaker would open longer than it may")
        return self


class Continuation(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Retries(Section):
    """Second tries, before the first byte of an answer only."""

    attempts: int = Field(default=2, ge=0, le=5)
    """Further tries after the first, each on another member."""
    budget_ratio: float = Field(default=0.2, ge=0, le=1)
    """Retries allowed as a share of requests."""
    budget_min_per_s: float = Field(default=10, ge=0)
    """Retries a second that are always allowed."""
    continuation: Annotated[Continuation, BeforeValidator(switch)] = Continuation.AUTO
    """Whether a stream whose engine has gone goes on on another one of the same version: `on`, `off`, or
    `auto` (with engines that an agent keeps). For that they are asked for the ids of their tokens."""


class Key(Section):
    """One client's API key."""

    name: Name
    """Tenant: shown in logs, separates caches."""
    sha256: KeyDigest
    """SHA-256 of the key, in hex (`changeover check --hash-key` prints it)."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Requests it may begin in a minute. None: no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Estimated tokens (prompt plus `max_tokens`) it may ask for in a minute. None: no limit."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """Requests it may have open at a time. None: no limit."""
    priority: int = Field(default=0, ge=-10, le=10)
    """Requests of a higher priority leave the queue first."""


class QuotaStore(StrEnum):
    MEMORY = "memory"
    REDIS = "redis"


class Auth(Section):
    """Who may call."""

    keys: tuple[Key, ...] = ()
    """Clients that may call. None: everyone may."""
    quotas: Annotated[QuotaStore, BeforeValidator(lower)] = QuotaStore.MEMORY
    """Where the limits a minute are counted: `memory` (by each worker), or `redis` (together; the server is
    the cache's, and while it does not answer each worker counts for itself)."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            found.distinct("keys", "name", [key.name for key in self.keys])
            found.distinct("keys", "sha256", [key.sha256 for key in self.keys])
        return self


class CacheType(StrEnum):
    OFF = "off"
    MEMORY = "memory"
    REDIS = "redis"
    TIERED = "tiered"


class Cache(Section):
    """Where answers of deterministic requests are kept."""

    type: Annotated[CacheType, BeforeValidator(lower)] = CacheType.MEMORY
    """`memory`, `redis`, `tiered` (memory in front of Redis) or `off`."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Where Redis listens."""
    port: int = Field(default=6379, ge=1, le=65535)
    """Its port."""
    url: CacheUrl | None = None
    """Instead of host and port: `redis://`, `rediss://` (TLS), `unix://`, with user, password and database.
    Sentinel: `redis+sentinel://host:port,host:port/master/0`; a cluster: `redis+cluster://host:port`."""
    ttl_s: float = Field(default=3600, gt=0)
    """How long an answer may be reused."""
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Memory for cached answers, per worker."""
    timeout_s: float = Field(default=0.05, gt=0)
    """A look-up that takes longer is a miss."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            for key in ("host", "port"):
                if self.url is not None and found.given("url", key):
                    found.add(f"`url` stands instead of `{key}`: leave one of them out", "url", key)
        return self


class BatchMode(StrEnum):
    AUTO = "auto"
    OFF = "off"


class Batching(Section):
    """Prompts of `/predict` that travel to an engine together. `auto` and `off` stand for a whole section."""

    mode: Annotated[BatchMode, BeforeValidator(switch)] = BatchMode.AUTO
    """`auto` (where it helps) or `off`."""
    window_ms: float = Field(default=2, ge=0, le=1000)
    """How long prompts are collected while others like them are with the engine. An idle one is never waited
    for."""
    max_batch_size: int | None = Field(default=None, ge=1)
    """Most prompts in one call. Never more than the engine's own `max_batch_size`; where that is not known
    (engines that run elsewhere), the default is 32."""
    max_tokens: int = Field(default=32, ge=1)
    """Requests for more tokens than this travel alone: their answers end at different times, and to hand out
    each as it ends costs the engine's server more than batching saves."""


def _batching(value: object) -> object:
    return {"mode": value} if isinstance(value, str | bool) else value


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Logging(Section):
    """What is written, and how."""

    format: Annotated[LogFormat, BeforeValidator(lower)] = LogFormat.CONSOLE
    """`console` for people, `json` for machines: one object a line."""
    level: Annotated[LogLevel, BeforeValidator(lower)] = LogLevel.INFO
    """The least important messages that are written: `debug`, `info`, `warning` or `error`."""
    requests: bool = True
    """Write one line for each request."""


class Telemetry(Section):
    """Traces."""

    otlp_endpoint: HttpUrl | None = None
    """OpenTelemetry collector (OTLP over HTTP) that gets a span for each request. None: off."""


class Model(Section):
    """One model and the engines that serve it."""

    name: Name
    """What clients call it."""
    engine: EngineSettings | None = None
    """Engines that `changeover serve` starts for it."""
    endpoints: EndpointList = ()
    """Engines that run elsewhere."""
    routing: Routing | None = None
    """Default: the top-level `routing`."""
    limits: Limits | None = None
    """Default: the top-level `limits`."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            found.distinct("endpoints", "url", [endpoint.url for endpoint in self.endpoints])
        return self


class Settings(Section):
    """The whole of `infer_config.yaml`."""

    server: Server = Server()
    engine: EngineSettings = EngineSettings()
    endpoints: EndpointList = ()
    """Engines that run elsewhere. Given these and no `engine`, `changeover serve` starts none."""
    models: tuple[Model, ...] = ()
    """Several models. Instead of `engine` and `endpoints`."""
    routing: Routing = Routing()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    health: Health = Health()
    retries: Retries = Retries()
    auth: Auth = Auth()
    cache: Cache = Cache()
    batching: Annotated[Batching, BeforeValidator(_batching)] = Batching()
    checkpoints: Checkpoints = Checkpoints()
    rollout: Rollout = Rollout()
    admin: Admin = Admin()
    logging: Logging = Logging()
    telemetry: Telemetry = Telemetry()
    run_dir: RunDirectory | None = None
    """Sockets and shared counters. Default: a private folder under the system's temporary folder."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            for key in ("engine", "endpoints"):
                if self.models and found.given("models", key):
                    found.add(
                        f"`models` stands instead of `{key}`: move it into the model it serves", "models", key
                    )
            found.distinct("models", "name", [model.name for model in self.models])
            found.distinct("endpoints", "url", [endpoint.url for endpoint in self.endpoints])
            for index, model in enumerate(self.models):
                if model.engine is None and not model.endpoints:
                    found.add(
                        "needs `engine` (started here) or `endpoints` (run elsewhere)", ("models", index)
                    )
        return self

    def served_models(self) -> tuple[Model, ...]:
        """The models with everything inherited filled in, the default model first."""
        if self.models:
            return tuple(
                model.model_copy(
                    update={"routing": model.routing or self.routing, "limits": model.limits or self.limits}
                )
                for model in self.models
            )
        own_engine = "engine" in self.model_fields_set or not self.endpoints
        name = self.engine.served_name or self.engine.model.rstrip("/").rsplit("/", 1)[-1]
        if not own_engine:
            name = self.engine.served_name or "default"
        return (
            Model(
                name=name,
                engine=self.engine if own_engine else None,
                endpoints=self.endpoints,
                routing=self.routing,
                limits=self.limits,
            ),
        )
