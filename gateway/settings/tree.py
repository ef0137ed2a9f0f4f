"""The settings tree: every option of the gateway, its type, default and meaning.

Frozen pydantic models. Units are in the names (`_s` seconds, `_bytes`, `_tokens`).
Docstrings of the fields are the documentation of the options. Loading is `gateway.settings.load`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from backends.settings import EngineSettings, Section


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Cors(Section):
    origins: tuple[str, ...] = ()
    """Origins that browsers may call from; `*` for any. None: no CORS headers."""
    max_age_s: int = Field(600, ge=0)
    """How long a browser may remember a preflight answer."""


class Server(Section):
    """The listening side."""

    host: str = "0.0.0.0"
    port: int = Field(8000, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    workers: int = Field(1, ge=1, le=64)
    """Gateway processes that share the port."""
    keep_alive_s: float = Field(75, gt=0)
    """Idle time after which a client's connection is closed. Longer than the proxy's in front (nginx: 60 s)."""
    max_body_bytes: int = Field(20 * 1024 * 1024, ge=1024)
    """Largest request body, after decompression."""
    max_connections: int = Field(20_000, ge=1)
    """Open client connections of one worker; more are refused with 503."""
    header_timeout_s: float = Field(30, gt=0)
    """Time a client has to send a request's head and body once it has begun."""
    settle_s: float = Field(5, ge=0)
    """After SIGTERM: time in which readiness is 503 but requests are still answered, so that balancers forget us."""
    drain_s: float = Field(60, ge=0)
    """After that: time for requests in flight to end."""
    cors: Cors = Cors()


class Admin(Section):
    token: SecretStr | None = None
    """Bearer token for `/admin/*`. None: those routes answer 404."""


class PolicyName(StrEnum):
    ROUND_ROBIN = "round_robin"
    LEAST_LOAD = "least_load"
    POWER_OF_TWO = "power_of_two"
    PREFIX = "prefix"
    SESSION = "session"


class Routing(Section):
    """Which member gets a request."""

    policy: Annotated[PolicyName, BeforeValidator(_lower)] = PolicyName.LEAST_LOAD
    load_factor: float = Field(1.25, ge=1)
    """`prefix` and `session`: a member is passed over above this multiple of the mean load (plus one)."""
    prefix_chars: int = Field(1024, ge=16)
    """`prefix`: how much of the prompt's beginning decides."""
    session_header: str = "x-session-id"
    """`session`: header that names the session."""
    session_key: str = "user"
    """`session`: body key that names it where the header is absent."""


class Endpoint(Section):
    """An engine that runs elsewhere: plain `vllm serve` works."""

    url: str
    """`http://host:port`, `unix:/path`, or `dns://name:port` for all addresses of a name, looked up again."""
    api_key: SecretStr | None = None
    """Sent to the engine as `Authorization: Bearer`."""
    weight: float = Field(1.0, gt=0)
    """Relative capacity."""


def _endpoint(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


EndpointList = tuple[Annotated[Endpoint, BeforeValidator(_endpoint)], ...]


class Limits(Section):
    """Admission, per model and worker."""

    max_in_flight: int = Field(2048, ge=1)
    """Requests with the engines at a time."""
    max_tokens_in_flight: int = Field(4_000_000, ge=1)
    """Estimated tokens (prompt plus `max_tokens`) with the engines at a time."""
    max_in_flight_per_member: int = Field(512, ge=1)
    """Requests with one engine at a time."""
    max_queued: int = Field(4096, ge=0)
    """Requests that may wait for one of these, or for a ready engine."""
    max_queue_s: float = Field(30, ge=0)
    """Longest such wait."""


class Timeouts(Section):
    """Four limits that differ: a long answer is not a slow one."""

    connect_s: float = Field(2, gt=0)
    """To connect to an engine."""
    first_byte_s: float = Field(120, gt=0)
    """Streams: from sending the request to the first byte of the answer."""
    silence_s: float = Field(60, gt=0)
    """Streams: between two reads."""
    total_s: float = Field(600, gt=0)
    """The whole request, queueing included. A request may ask for less (`x-request-timeout`, in seconds)."""
    stream_total_s: float = Field(3600, gt=0)
    """The same for a stream."""
    heartbeat_s: float = Field(15, gt=0)
    """Silence on a stream after which the client gets a comment line, so that proxies keep it open."""


class Health(Section):
    """How members come and go."""

    interval_s: float = Field(2, gt=0)
    """Between two probes of a member."""
    timeout_s: float = Field(2, gt=0)
    """For one probe."""
    unhealthy_after: int = Field(3, ge=1)
    """Failed probes in a row that eject a member."""
    healthy_after: int = Field(2, ge=1)
    """Successful probes in a row that bring an ejected one back."""
    traffic_failures: int = Field(5, ge=1)
    """Failures in a row of the backend's own making (refused, reset, 502, 503, first-byte timeout) that open its breaker."""
    breaker_open_s: float = Field(5, gt=0)
    """First time a breaker stays open; doubles up to `breaker_max_s`."""
    breaker_max_s: float = Field(30, gt=0)
    stall_s: float = Field(20, gt=0)
    """An engine whose token counters stand still this long while requests run is ejected."""
    resolve_s: float = Field(5, gt=0)
    """Between two look-ups of a DNS endpoint."""


class Retries(Section):
    attempts: int = Field(2, ge=0, le=5)
    """Further tries after the first, each on another member."""
    budget_ratio: float = Field(0.2, ge=0, le=1)
    """Retries allowed as a share of requests."""
    budget_min_per_s: float = Field(3, ge=0)
    """Retries a second that are always allowed."""


class Key(Section):
    """One client's API key."""

    name: str
    """Tenant: shown in logs, separates caches."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the key, in hex (`changeover check --hash-key` prints it)."""
    requests_per_minute: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1)
    max_in_flight: int | None = Field(None, ge=1)
    priority: int = Field(0, ge=-10, le=10)
    """Requests of a higher priority leave the queue first."""


class Auth(Section):
    keys: tuple[Key, ...] = ()
    """Clients that may call. None: everyone may."""


class CacheType(StrEnum):
    OFF = "off"
    MEMORY = "memory"
    REDIS = "redis"
    TIERED = "tiered"


class Cache(Section):
    """Where answers of deterministic requests are kept."""

    type: Annotated[CacheType, BeforeValidator(_lower)] = CacheType.MEMORY
    """`memory`, `redis`, `tiered` (memory in front of Redis) or `off`."""
    host: str = "127.0.0.1"
    port: int = Field(6379, ge=1, le=65535)
    url: SecretStr | None = None
    """Instead of host and port: `redis://`, `rediss://`, `unix://`, with user, password and database."""
    ttl_s: float = Field(3600, gt=0)
    max_bytes: int = Field(256 * 1024 * 1024, ge=0)
    """Memory for cached answers, per worker."""
    timeout_s: float = Field(0.05, gt=0)
    """A look-up that takes longer is a miss."""


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class Logging(Section):
    format: Annotated[LogFormat, BeforeValidator(_lower)] = LogFormat.CONSOLE
    level: str = Field("info", pattern="^(debug|info|warning|error)$")
    prompts: bool = False
    """Write prompts and answers to the log. They may hold what nobody should read."""
    requests: bool = True
    """Write one line for each request."""


class Telemetry(Section):
    otlp_endpoint: str | None = None
    """OpenTelemetry collector (OTLP over HTTP) that gets a span for each request. None: off."""


class Model(Section):
    """One model and the engines that serve it."""

    name: str
    engine: EngineSettings | None = None
    """Engines that `changeover serve` starts for it."""
    endpoints: EndpointList = ()
    """Engines that run elsewhere."""
    routing: Routing | None = None
    """Default: the top-level `routing`."""
    limits: Limits | None = None
    """Default: the top-level `limits`."""


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
    admin: Admin = Admin()
    logging: Logging = Logging()
    telemetry: Telemetry = Telemetry()
    run_dir: str | None = None
    """Sockets and shared counters. Default: a private folder under the system's temporary folder."""

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
        return (
            Model(
                name=name,
                engine=self.engine if own_engine else None,
                endpoints=self.endpoints,
                routing=self.routing,
                limits=self.limits,
            ),
        )
