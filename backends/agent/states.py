"""The states of a backend and the events that move it between them, as a table. Pure.

starting --healthy--> ready <--undrain/drain--> draining
starting, ready, draining --died--> restarting --launch--> starting
starting, restarting --gave_up--> failed
any but failed and stopped --stop--> stopped
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from backends.contract import State


class Event(StrEnum):
    HEALTHY = "healthy"
    """The engine answers."""
    DIED = "died"
    """The engine and all its processes have ended."""
    LAUNCH = "launch"
    """It is started again."""
    GAVE_UP = "gave_up"
    """It will not be started again."""
    DRAIN = "drain"
    UNDRAIN = "undrain"
    STOP = "stop"


class IllegalTransition(RuntimeError):
    """An event in a state that does not know it; nothing has changed."""


TABLE: Mapping[State, Mapping[Event, State]] = MappingProxyType(
    {
        State.STARTING: {
            Event.HEALTHY: State.READY,
            Event.DIED: State.RESTARTING,
            Event.GAVE_UP: State.FAILED,
            Event.STOP: State.STOPPED,
        },
        State.READY: {
            Event.DIED: State.RESTARTING,
            Event.DRAIN: State.DRAINING,
            Event.STOP: State.STOPPED,
        },
        State.DRAINING: {
            Event.DIED: State.RESTARTING,
            Event.UNDRAIN: State.READY,
            Event.STOP: State.STOPPED,
        },
        State.RESTARTING: {
            Event.LAUNCH: State.STARTING,
            Event.GAVE_UP: State.FAILED,
            Event.STOP: State.STOPPED,
        },
        State.FAILED: {},
        State.STOPPED: {},
    }
)


def advance(state: State, event: Event) -> State:
    """The state after the event. Raises IllegalTransition."""
    after = TABLE[state].get(event)
    if after is None:
        raise IllegalTransition(f"a backend that is {state} cannot take the event {event}")
    return after
