"""Which version is asked for what while a rollout goes on, and on how many members a canary runs. Pure.

`split` is the same in every worker, since all read the same record; nobody tells anybody.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from backends.versions import BASE
from checkpoints.rollouts import Rollout, Stage
from gateway.fleet.split import Split
from gateway.rollout.view import BASE_MODEL, Weights
from gateway.settings.rollout import RolloutMode

ANY = Split()
"""Whatever a member serves."""


def canary_size(share: float, members: int) -> int:
    """Members that serve the candidate: at least one, and never all."""
    return max(1, min(members - 1, math.floor(share * members + 0.5)))


def split(record: Rollout | None, serving: Weights, labels: Collection[str]) -> Split:
    """How requests are divided between versions.

    `labels`: what the members serve now. A version that no member serves is not insisted on: an answer of
    the version before is better than none, and it says what it is.
    """
    if record is None or not record.active:
        return _only(serving, labels)
    before, new = before_of(record), target_of(record)
    atomic = record.mode == RolloutMode.ATOMIC
    if record.stage is Stage.CANARY:
        stable, candidate = _label(before, labels), _label(new, labels)
        if stable is not None and candidate is not None:
            return Split(stable, candidate, record.share, record.sticky)
        return _only(before, labels)
    if record.stage is Stage.PROMOTING:
        return _only(new, labels, atomic=atomic)
    if record.stage is Stage.ROLLING and not atomic:
        return ANY
    return _only(before, labels, atomic=atomic)


def target_of(record: Rollout) -> Weights:
    """What a rollout brings."""
    return _weights(record.version, record.label, record.digest)


def before_of(record: Rollout) -> Weights:
    """What it goes back to."""
    return _weights(record.from_version, record.from_label)


def _weights(number: int, label: str, digest: str = "") -> Weights:
    return BASE_MODEL if number == BASE else Weights(number, label, digest)


def _only(weights: Weights, labels: Collection[str], *, atomic: bool = False) -> Split:
    return Split(stable=_label(weights, labels), atomic=atomic)


def _label(weights: Weights, labels: Collection[str]) -> str | None:
    return next((label for label in sorted(labels) if weights.are(label)), None)
