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


def canary_size(share: float, members: int) -> int:
    """Members that serve the candidate: at least one, and never all."""
    return max(1, min(members - 1, math.floor(share * members + 0.5)))


def split(record: Rollout | None, serving: Weights, labels: Collection[str]) -> Split | None:
    """How requests are divided between versions; None: any member may have any request.

    `labels`: what the members serve now. A version that no member serves is not insisted on: an answer of
    the version before is better than none, and it says what it is. Only `atomic` insists.
    """
    if record is None or not record.active:
        return _only(serving, labels)
    before, new = before_of(record), target_of(record)
    if record.mode == RolloutMode.ATOMIC:
        wanted = new if record.stage is Stage.PROMOTING else before
        return Split(stable=_label(wanted, labels) or wanted.known_label, atomic=True)
    if record.stage is Stage.CANARY:
        stable, candidate = _label(before, labels), _label(new, labels)
        if stable is not None and candidate is not None:
            return Split(stable, candidate, record.share, record.sticky)
        return _only(before, labels)
    if record.stage is Stage.ROLLING:
        return None
    return _only(new if record.stage is Stage.PROMOTING else before, labels)


def shadowed(record: Rollout | None) -> tuple[str | None, float]:
    """The label that gets copies of requests, and of which share of them; None: none does."""
    if record is None or record.stage is not Stage.CANARY or not record.shadow:
        return None, 0.0
    return record.label, record.shadow


def target_of(record: Rollout) -> Weights:
    """What a rollout brings."""
    return _weights(record.version, record.label, record.digest)


def before_of(record: Rollout) -> Weights:
    """What it goes back to."""
    return _weights(record.from_version, record.from_label)


def _weights(number: int, label: str, digest: str = "") -> Weights:
    return BASE_MODEL if number == BASE else Weights(number, label, digest)


def _only(weights: Weights, labels: Collection[str]) -> Split | None:
    label = _label(weights, labels)
    # Where all serve the same there is nothing to divide, and requests are spared the question.
    return Split(stable=label) if label is not None and len(labels) > 1 else None


def _label(weights: Weights, labels: Collection[str]) -> str | None:
    return next((label for label in sorted(labels) if weights.are(label)), None)
