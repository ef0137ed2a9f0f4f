"""What `GET /status` answers: the gateway's state for people, read by `changeover status`.

Only additions are allowed: an older `changeover status` reads a newer gateway, and the other way round.
"""

from __future__ import annotations

import msgspec


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, as this gateway sees it."""

    name: str
    address: str
    state: str
    """A name of the table in `gateway.fleet.states`."""
    reason: str = ""
    """Why it is in that state; empty where nothing needs saying."""
    version: str = ""
    """The weights it serves; empty: not known yet."""
    in_flight: int = 0
    tokens: int = 0
    """Estimated tokens of the requests in flight."""
    requests: int = 0
    """Answered since the gateway began."""
    failures: int = 0
    latency_s: float | None = None
    """Smoothed time to an answer; None: it has answered nothing yet."""
    since_s: float = 0.0
    """How long it has been in its state."""


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ready: bool
    policy: str
    versions: list[str] = []
    stable: str = ""
    """The version that requests get which no rollout sends elsewhere; empty: any that is served."""
    candidate: str = ""
    """The version that is being tried; empty: none."""
    share: float = 0.0
    """Of the requests that go to the candidate."""
    members: list[MemberStatus] = []


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    version: str
    """Of the gateway."""
    uptime_s: float
    workers: int
    qps: float
    """Requests answered a second, over the sliding window."""
    latency_s: dict[str, float | None] = {}
    """Quantile ("0.5", "0.9", "0.99") to seconds, over the same window; None: nothing was answered in it."""
    in_flight: int = 0
    queued: int = 0
    models: list[ModelStatus] = []


def decode_status(body: bytes) -> GatewayStatus:
    """Read the answer. Raises msgspec.DecodeError for anything that is none."""
    return msgspec.json.decode(body, type=GatewayStatus)
