"""What a backend and whoever asks it have agreed on: header names, states and the answer to /status.

Standard library only, since the guard inside the engine imports it as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

TOKEN_HEADER = "x-changeover-token"  # noqa: S105 (a header's name)
"""Carries the token that opens the control paths of a backend and of its engine."""
VERSION_HEADER = "x-model-version"
"""On every answer: the version of the weights that computed it."""
ELSEWHERE_HEADER = "x-changeover-elsewhere"
"""On a 503: this engine is well but takes nothing new for the reason given (`draining`, `swapping`,
`uncertain`); ask another."""
PROBE_HEADER = "x-changeover-probe"
"""With the token: this request is the agent's own, and is answered though the engine is out of rotation."""
GUARD_PATH = "/changeover/guard"
"""Shows (GET) and sets (POST) the state of an engine's guard."""


class State(StrEnum):
    """Where a backend is; the transitions stand in `backends.agent.states`."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """The guard's account of its engine."""

    version: str
    draining: bool
    in_flight: int
    """Requests of clients that are not answered to the last byte."""


class Way(StrEnum):
    """How an engine takes other weights."""

    AUTO = "auto"
    """The cheapest that what changed allows and that is qualified."""
    IN_PLACE = "in_place"
    ADAPTER = "adapter"
    RESTART = "restart"


class Phase(StrEnum):
    """Where a swap is; every phase is bounded in time."""

    PREPARING = "preparing"
    """Fetching and verifying; the engine serves on."""
    DRAINING = "draining"
    """Nothing new; what runs may end."""
    LOADING = "loading"
    """Pause, load, reset caches, label, resume: out of rotation."""
    RESTARTING = "restarting"
    PROBING = "probing"
    WARMING = "warming"
    HELD = "held"
    """Proved, and out of rotation until it is released."""
    UNDOING = "undoing"
    """Back to the weights before."""
    ENDED = "ended"


class Outcome(StrEnum):
    """How a swap ended. There is no fourth way."""

    SERVING_NEW = "serving_new"
    SERVING_OLD = "serving_old"
    RESTARTING = "restarting"
    """Its weights are not known: out of rotation, being started on what should be served."""


class InFlight(StrEnum):
    """What becomes of requests that still run when a swap waits no longer."""

    ABORT = "abort"
    """They end with an error."""
    CONTINUE = "continue"
    """Their connections are cut, and the gateway continues them on another engine of the same version."""


class ProbeRule(StrEnum):
    """Whether a version must prove itself."""

    REQUIRED = "required"
    """A version without a probe is not served."""
    IF_PRESENT = "if_present"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class SwapOrder:
    """What `POST /swap` is told. The same `id` again asks for the same swap."""

    id: str
    version: int
    """A number in the store; 0: the base model."""
    way: Way = Way.AUTO
    hold: bool = False
    """Stay out of rotation after success, until `POST /release`."""
    wait_s: float = 30.0
    """For requests in flight to end."""
    then: InFlight = InFlight.CONTINUE
    probe: ProbeRule = ProbeRule.IF_PRESENT
    limits: dict[str, float] = field(default_factory=dict)
    """Single parity limits that replace the defaults."""
    warm_up: int = 4
    """Requests before it takes traffic."""
    deadline_s: float = 900.0
    """For the whole, restart included."""


@dataclass(frozen=True, slots=True)
class SwapStatus:
    """The agent's account of one swap."""

    id: str
    version: str
    """The label of the wanted weights."""
    way: Way
    phase: Phase
    outcome: Outcome | None = None
    reason: str = ""
    """Why it ended as it did, or why this way was taken."""
    report: dict[str, Any] | None = None
    """The parity report, as `checkpoints.probe.judge.Report` in JSON; None where nothing was probed."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds in each phase that is over."""
    out_of_rotation_s: float = 0.0
    aborted: int = 0
    """Requests that ran when it waited no longer."""


@dataclass(frozen=True, slots=True)
class PrepareStatus:
    """The agent's account of a version that it fetches and verifies ahead of time."""

    version: str
    done_bytes: int = 0
    total_bytes: int = 0
    ready: bool = False
    error: str | None = None
    """Why it cannot be served, findings included."""
    condemned: bool = False
    """The version itself is at fault; else asking again may help."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """The agent's account of its engine (`GET /status`)."""

    name: str
    state: State
    model: str
    version: str
    since: str
    """When it came into this state, ISO 8601, UTC."""
    detail: str
    """What the engine is at while it starts, for people."""
    pid: int | None
    """The engine's API server; None while none runs."""
    restarts: int
    last_error: str | None
    wanted: str = ""
    """The label of what should be served here."""
    preparing: PrepareStatus | None = None
    """The version fetched last."""
    swap: SwapStatus | None = None
    """The swap that runs, or the last one."""
    fixed: bool = False
    """Its weights are never changed: no store is configured there."""
