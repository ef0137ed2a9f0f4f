"""The states of a fleet member, as one table.

`TRANSITIONS` is the whole truth: what is not in it cannot happen. An illegal event raises and changes
nothing. Why a member is where it is (probes, traffic, a stall) is `gateway.fleet.health`'s to know.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a member stands. The values are labels in metrics and in `changeover status`."""

    STARTING = "starting"
    """Never seen well yet."""
    READY = "ready"
    SUSPECT = "suspect"
    """Its breaker is half open: a few requests try it."""
    EJECTED = "ejected"
    """Probes, traffic or standing counters speak against it."""
    DRAINING = "draining"
    """It leaves: what runs on it ends, nothing new begins."""
    UNCERTAIN = "uncertain"
    """Its weights are being changed: out of rotation until loaded and proved again."""
    GONE = "gone"
    """Removed. The end."""


class Event(StrEnum):
    RECOVERED = "recovered"
    """Seen well: by probes, by a trial request, or by counters that move again."""
    FAILED = "failed"
    """Found faulty: by probes, by traffic, or by counters that stand still."""
    COOLED = "cooled"
    """Its breaker has been open long enough for a trial."""
    CONTACT = "contact"
    """Whether anybody listens there has changed; it stays ejected, but may be a last resort or not."""
    DRAIN = "drain"
    """It leaves, by an operator's word or its own."""
    RESUME = "resume"
    """It does not leave after all, and must be seen well again. One of unknown weights is doubted instead."""
    DOUBT = "doubt"
    """What it computes is no longer known: a swap begins, or broke off."""
    PROVED = "proved"
    """It was shown to serve the weights it names."""
    WARMED = "warmed"
    """It has shown that it may be given more than before; it stays as it is."""
    REMOVE = "remove"


class IllegalTransition(ValueError):
    """The event cannot happen in this state; nothing was changed."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"a member that is {state.value} cannot take the event {event.value!r}")
        self.state = state
        self.event = event


TRANSITIONS: MappingProxyType[tuple[State, Event], State] = MappingProxyType(
    {
        (State.STARTING, Event.RECOVERED): State.READY,
        (State.STARTING, Event.FAILED): State.EJECTED,
        (State.STARTING, Event.DRAIN): State.DRAINING,
        (State.STARTING, Event.DOUBT): State.UNCERTAIN,
        (State.STARTING, Event.REMOVE): State.GONE,
        (State.READY, Event.WARMED): State.READY,
        (State.READY, Event.FAILED): State.EJECTED,
        (State.READY, Event.DRAIN): State.DRAINING,
        (State.READY, Event.DOUBT): State.UNCERTAIN,
        (State.READY, Event.REMOVE): State.GONE,
        (State.SUSPECT, Event.RECOVERED): State.READY,
        (State.SUSPECT, Event.FAILED): State.EJECTED,
        (State.SUSPECT, Event.DRAIN): State.DRAINING,
        (State.SUSPECT, Event.DOUBT): State.UNCERTAIN,
        (State.SUSPECT, Event.REMOVE): State.GONE,
        (State.EJECTED, Event.RECOVERED): State.READY,
        (State.EJECTED, Event.CONTACT): State.EJECTED,
        (State.EJECTED, Event.COOLED): State.SUSPECT,
        (State.EJECTED, Event.DRAIN): State.DRAINING,
        (State.EJECTED, Event.DOUBT): State.UNCERTAIN,
        (State.EJECTED, Event.REMOVE): State.GONE,
        (State.DRAINING, Event.RESUME): State.STARTING,
        (State.DRAINING, Event.DOUBT): State.UNCERTAIN,
        (State.DRAINING, Event.REMOVE): State.GONE,
        (State.UNCERTAIN, Event.PROVED): State.READY,
        (State.UNCERTAIN, Event.DRAIN): State.DRAINING,
        (State.UNCERTAIN, Event.REMOVE): State.GONE,
    }
)

LEASABLE: frozenset[State] = frozenset({State.READY, State.SUSPECT})
"""States in which a member may get a new request."""

LAST_RESORT: frozenset[State] = frozenset({State.EJECTED})
"""States whose members are used when no member is leasable. Never one that leaves, and never one whose
weights are uncertain: no answer is better than one of unknown weights."""


def step(state: State, event: Event) -> State:
    """The state after the event. Raises `IllegalTransition`."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise IllegalTransition(state, event)
    return after
