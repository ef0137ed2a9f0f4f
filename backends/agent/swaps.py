"""What comes after what in a swap, as a table. Pure.

preparing --done--> draining --done--> loading (in place) or restarting --done--> probing
probing --done--> warming --done--> serving the new, or held --done (released)--> serving the new
An adapter is loaded beside what is served: preparing --done--> loading.

A phase ends in one of three ways. *Failed*: the engine said no, so it is known to do nothing more.
*Lost*: the engine is gone, or did not answer in time, and whatever it was told may still happen.
What failed before the load began leaves the old weights serving; what failed after it is undone; what is
lost is never trusted again: the engine is killed and started on what should be served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from backends.contract import Outcome, Phase, Way


class Event(StrEnum):
    """How a phase ended."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Step:
    """What follows: another phase, or `ENDED` with its outcome."""

    phase: Phase
    outcome: Outcome | None = None


NEW = Step(Phase.ENDED, Outcome.SERVING_NEW)
OLD = Step(Phase.ENDED, Outcome.SERVING_OLD)
UNKNOWN = Step(Phase.ENDED, Outcome.RESTARTING)
UNDO = Step(Phase.UNDOING)

TABLE: Mapping[Phase, Mapping[Event, Step]] = MappingProxyType(
    {
        Phase.PREPARING: {Event.DONE: Step(Phase.DRAINING), Event.FAILED: OLD, Event.LOST: UNKNOWN},
        Phase.DRAINING: {Event.DONE: Step(Phase.LOADING), Event.FAILED: OLD, Event.LOST: UNKNOWN},
        Phase.LOADING: {Event.DONE: Step(Phase.PROBING), Event.FAILED: UNDO, Event.LOST: UNKNOWN},
        # An engine that does not come up on the new weights was ours to end; the old ones did start.
        Phase.RESTARTING: {Event.DONE: Step(Phase.PROBING), Event.FAILED: UNDO, Event.LOST: UNDO},
        Phase.PROBING: {Event.DONE: Step(Phase.WARMING), Event.FAILED: UNDO, Event.LOST: UNKNOWN},
        Phase.WARMING: {Event.DONE: Step(Phase.HELD), Event.FAILED: UNDO, Event.LOST: UNKNOWN},
        Phase.HELD: {Event.DONE: NEW, Event.FAILED: UNDO, Event.LOST: UNKNOWN},
        Phase.UNDOING: {Event.DONE: OLD, Event.FAILED: UNKNOWN, Event.LOST: UNKNOWN},
        Phase.ENDED: {},
    }
)


class IllegalEvent(RuntimeError):
    """An event in a phase that does not know it; nothing has changed."""


def after(phase: Phase, event: Event, *, way: Way, hold: bool) -> Step:
    """What follows. `way` is the one that is taken, never `auto`. Raises IllegalEvent."""
    step = TABLE[phase].get(event)
    if step is None:
        raise IllegalEvent(f"a swap that is {phase} cannot take the event {event}")
    if step.phase is Phase.DRAINING and way is Way.ADAPTER:
        return Step(Phase.LOADING)
    if step.phase is Phase.LOADING and way is Way.RESTART:
        return Step(Phase.RESTARTING)
    if step.phase is Phase.HELD and not hold:
        return NEW
    return step
