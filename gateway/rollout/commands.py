"""What an operator may tell a rollout, as changes of its record. Pure; the record is written by the caller.

A gateway that leads finds the change at its next look, so it does not matter which gateway is asked.
"""

from __future__ import annotations

from msgspec.structs import replace

from checkpoints.rollouts import Rollout, Stage

_BEFORE_ENGINES = frozenset({Stage.VERIFYING, Stage.PREPARING})
_BEFORE_ALL = _BEFORE_ENGINES | {Stage.CANARY}
_GOING_FORWARD = _BEFORE_ALL | {Stage.ROLLING}


class NotPossible(Exception):
    """The rollout is not where this could be done; the message says where it is."""


def promote(record: Rollout, *, by: str, now: float) -> Rollout:
    """Go on to all members without waiting for evidence. Raises NotPossible."""
    _require(record, _BEFORE_ALL, "promoted")
    return replace(record, forced=True, paused=False, by=by, reason=f"promoted by {by}")


def take_back(record: Rollout, *, by: str, now: float, reason: str = "") -> Rollout:
    """Back to the version before, everywhere; the weights go into quarantine. Raises NotPossible."""
    _require(record, _GOING_FORWARD | {Stage.PROMOTING}, "rolled back")
    stage = Stage.REFUSED if record.stage in _BEFORE_ENGINES else Stage.ROLLING_BACK
    why = reason or f"rolled back by {by}"
    return replace(record, stage=stage, since=now, by=by, reason=why, blamed=True, paused=False)


def pause(record: Rollout, *, by: str) -> Rollout:
    """Send no further member on its way; shares stay as they are. Raises NotPossible."""
    _require(record, _GOING_FORWARD, "paused")
    return replace(record, paused=True, by=by)


def resume(record: Rollout, *, by: str) -> Rollout:
    """Go on. Raises NotPossible."""
    if not record.active or not record.paused:
        raise NotPossible(f"{record.id} is not paused: it is {record.stage.value}")
    return replace(record, paused=False, by=by)


def _require(record: Rollout, stages: frozenset[Stage], what: str) -> None:
    if record.stage not in stages:
        raise NotPossible(f"{record.id} is {record.stage.value} and cannot be {what}")
