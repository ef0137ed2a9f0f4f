"""What a backend and whoever asks it have agreed on: header names, states and the answer to /status.

Standard library only, since the guard inside the engine imports it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TOKEN_HEADER = "x-changeover-token"  # noqa: S105 (a header's name)
"""Carries the token that opens the control paths of a backend and of its engine."""
VERSION_HEADER = "x-model-version"
"""On every answer: the version of the weights that computed it."""
ELSEWHERE_HEADER = "x-changeover-elsewhere"
"""On a 503: this engine is well but takes nothing new for the reason given; ask another."""
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
