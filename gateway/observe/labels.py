"""The closed sets of label values. Nothing a client sends becomes a label.

A value that is not in its set cannot be counted: adding one is a change here, and every series of it
then exists from the start with the value 0.
"""

from __future__ import annotations

from enum import StrEnum

OTHER_MODEL = "other"
"""Stands for every model name that is not configured."""

OTHER_VERSION = "other"
"""Stands for versions beyond those that are counted apart."""

OVERFLOW = "overflow"
"""Stands for whatever no longer fits into a worker's cells."""


class Route(StrEnum):
    PREDICT = "predict"
    COMPLETIONS = "completions"
    CHAT = "chat"
    EMBEDDINGS = "embeddings"
    RESPONSES = "responses"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    MODELS = "models"
    OPS = "ops"
    ADMIN = "admin"
    OTHER = "other"


INFERENCE = (
    Route.PREDICT,
    Route.COMPLETIONS,
    Route.CHAT,
    Route.EMBEDDINGS,
    Route.RESPONSES,
    Route.TOKENIZE,
    Route.DETOKENIZE,
)
"""The routes that engines answer: only these count for QPS and latency."""


class TokenKind(StrEnum):
    PROMPT = "prompt"
    COMPLETION = "completion"


class Attempt(StrEnum):
    """How one call of a member ended."""

    OK = "ok"
    CLIENT_ERROR = "client_error"
    """4xx, passed on as it came."""
    SERVER_ERROR = "server_error"
    """5xx other than 502, 503 and 504."""
    UNAVAILABLE = "unavailable"
    """502, 503 or 504."""
    DRAINING = "draining"
    """503 with the guard's mark: elsewhere, not broken."""
    REFUSED = "refused"
    """No connection."""
    RESET = "reset"
    """The connection broke before the answer was whole."""
    PROTOCOL = "protocol"
    """What came was not HTTP, or not what its headers promised."""
    TIMEOUT = "timeout"
    OTHER_VERSION = "other_version"
    """It was computed by other weights than those that were asked for, and went nowhere."""
    CANCELLED = "cancelled"
    """The client left, or a deadline that is not the member's fault passed."""


class RetryReason(StrEnum):
    REFUSED = "refused"
    RESET = "reset"
    UNAVAILABLE = "unavailable"
    DRAINING = "draining"
    TIMEOUT = "timeout"
    VERSION = "version"
    """Other weights answered than those that were asked for."""


class Continued(StrEnum):
    """What became of a stream whose engine had gone."""

    CONTINUED = "continued"
    """Another engine of the same version went on with it."""
    IMPOSSIBLE = "impossible"
    """It ended in an error event that says why."""


class Refusal(StrEnum):
    """Why a request was not admitted."""

    IN_FLIGHT = "in_flight"
    TOKENS = "tokens"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    DEADLINE = "deadline"
    REQUEST_RATE = "request_rate"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    CONCURRENCY = "concurrency"
    CONNECTIONS = "connections"
    NO_MEMBER = "no_member"
    VERSION = "version"
    """No member serves the version that was asked for."""
    STOPPING = "stopping"


class CacheEvent(StrEnum):
    HIT = "hit"
    MISS = "miss"
    JOIN = "join"
    BYPASS = "bypass"
    STORE = "store"
    EVICT = "evict"
    ERROR = "error"


class ConnectionState(StrEnum):
    IDLE = "idle"
    BUSY = "busy"


class Reload(StrEnum):
    OK = "ok"
    REJECTED = "rejected"


class RolloutEnd(StrEnum):
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"
    SUPERSEDED = "superseded"


class SwapWay(StrEnum):
    """How an engine took other weights; the names are those of `backends.contract.Way`."""

    IN_PLACE = "in_place"
    ADAPTER = "adapter"
    RESTART = "restart"
    AUTO = "auto"
    """It ended before its way was chosen."""
