"""For how long a rollout has come no further: new heights count, movement does not. Pure.

A member that dies at every try moves all the time and gets nowhere. So what is compared is the most
members that ever had the weights in this stage, and the most bytes that were ever fetched.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpoints.rollouts import Rollout, Stage
from gateway.rollout.canary import before_of, target_of
from gateway.rollout.places import preparing_of
from gateway.rollout.view import Seen


class Progress:
    """Kept by whoever leads; a new leader begins to count anew."""

    def __init__(self) -> None:
        self._state: tuple[object, ...] = ()
        self._height = (-1, -1)
        self._since = 0.0

    def note(self, record: Rollout | None, members: Sequence[Seen], now: float) -> float:
        """Seconds since the last progress; 0 while nothing runs or it is paused."""
        state = (record.id, record.stage, record.share) if record is not None else ()
        height = _height(record, members)
        higher = any(new > old for new, old in zip(height, self._height, strict=True))
        if record is None or not record.active or record.paused or state != self._state or higher:
            self._since = now
            self._height = height if state != self._state else _highest(height, self._height)
            self._state = state
        return now - self._since


def _height(record: Rollout | None, members: Sequence[Seen]) -> tuple[int, int]:
    if record is None:
        return -1, -1
    target = before_of(record) if record.stage is Stage.ROLLING_BACK else target_of(record)
    statuses = [seen.status for seen in members if seen.status is not None]
    have = sum(target.are(status.version) for status in statuses)
    found = (preparing_of(seen, target) for seen in members)
    fetched = sum(got.done_bytes + got.ready for got in found if got is not None)
    return have, fetched


def _highest(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return max(a[0], b[0]), max(a[1], b[1])
