"""Where each member stands on its way to given weights, and how many may be sent on their way now. Pure.

A member is judged by what it says of itself: the label it serves, and the swap it did last, whose id says
on whose behalf and for the how-maniest time. Whoever takes over a rollout therefore sees what was tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backends.contract import BackendStatus, Phase, PrepareStatus, State, SwapOrder, SwapStatus, Way
from gateway.rollout.steps import Swap
from gateway.rollout.view import Seen, Weights
from gateway.settings.rollout import Rollout as Options

TRIES = 2
"""A swap that failed for a reason that may be the member's own is tried once more."""
AWAY_GRACE_S = 60.0
"""A member that nobody reaches counts as out of rotation for this long, and after that as none."""

_NOT_RUNNING = (State.FAILED, State.STOPPED)


class Place(StrEnum):
    AT = "at"
    """It serves the weights."""
    HELD = "held"
    """It has them, proved, and waits for its release."""
    BUSY = "busy"
    """It is on its way to some weights, or comes up."""
    BEHIND = "behind"
    """It serves others, and can be told to change."""
    FAILED = "failed"
    """It did not take them and is not asked again."""
    AWAY = "away"
    """Its agent does not answer."""
    GONE = "gone"
    """Not for a long time, its engine is given up, or an operator keeps it out: it is not counted on."""
    FIXED = "fixed"
    """It has no agent, or one without a store: its weights cannot be changed."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One member's place with regard to given weights."""

    seen: Seen
    place: Place
    attempt: int = 1
    """Of the next order."""
    reason: str = ""
    """Why it failed."""
    condemned: bool = False
    """It failed because of the weights: they did not pass their probe."""

    @property
    def name(self) -> str:
        return self.seen.name

    @property
    def swap(self) -> SwapStatus | None:
        return self.seen.status.swap if self.seen.status is not None else None

    @property
    def holds(self) -> bool:
        """It is out of rotation at weights that nobody wants any more."""
        return self.place is Place.BEHIND and self.swap is not None and self.swap.outcome is None

    @property
    def serves(self) -> bool:
        """Requests may be given to it."""
        usable = (Place.AT, Place.BEHIND, Place.FAILED, Place.FIXED)
        return self.seen.leasable and self.place in usable and not self.holds


def place_all(members: Iterable[Seen], target: Weights, purpose: str) -> list[Placed]:
    """`purpose` begins the ids of the orders that belong together."""
    return [place_of(seen, target, purpose) for seen in members]


def place_of(seen: Seen, target: Weights, purpose: str) -> Placed:
    """Where a member stands."""
    if not seen.agent:
        return Placed(seen, Place.FIXED)
    status = seen.status
    if status is None:
        return Placed(seen, Place.GONE if seen.away_s > AWAY_GRACE_S else Place.AWAY)
    if status.state in _NOT_RUNNING:
        return Placed(seen, Place.GONE)
    if status.fixed:
        return Placed(seen, Place.FIXED)
    swap = status.swap
    if swap is not None and swap.outcome is None:
        if swap.phase is not Phase.HELD:
            return Placed(seen, Place.BUSY)
        if swap.id.startswith(purpose) and target.are(swap.version):
            return Placed(seen, Place.HELD)
        return Placed(seen, Place.BEHIND)
    if is_drained(status) and seen.away_s > AWAY_GRACE_S:
        return Placed(seen, Place.GONE)
    if status.state is not State.READY:
        return Placed(seen, Place.BUSY)
    if target.are(status.version):
        return Placed(seen, Place.AT)
    return _behind(seen, status, purpose)


def is_drained(status: BackendStatus) -> bool:
    """It is out of rotation, and not for a swap: an operator wants it so."""
    return status.state is State.DRAINING and (status.swap is None or status.swap.outcome is not None)


def _behind(seen: Seen, status: BackendStatus, purpose: str) -> Placed:
    swap = status.swap
    if swap is None or not swap.id.startswith(purpose):
        return Placed(seen, Place.BEHIND)
    if swap.report is not None and swap.report.get("passed") is False:
        return Placed(seen, Place.FAILED, reason=swap.reason or "the probe failed", condemned=True)
    made = _attempt(swap.id)
    if made >= TRIES:
        return Placed(seen, Place.FAILED, reason=swap.reason or f"ended {swap.outcome}")
    return Placed(seen, Place.BEHIND, made + 1)


def _attempt(order_id: str) -> int:
    number = order_id.rpartition("-")[2]
    return int(number) if number.isdigit() else TRIES


def order_for(placed: Placed, target: Weights, purpose: str, options: Options, *, hold: bool) -> Swap:
    """The order that sends a member on its way."""
    return Swap(
        placed.name,
        SwapOrder(
            id=f"{purpose}{placed.attempt}",
            version=target.number,
            way=Way.AUTO,
            hold=hold,
            wait_s=options.wait_s,
            then=options.then,
            probe=options.probe,
            limits=dict(options.limits),
            warm_up=options.warm_up,
            deadline_s=options.member_deadline_s,
        ),
    )


def choose(
    everybody: Sequence[Placed], allowed: Iterable[str], max_unavailable: int, *, all_at_once: bool = False
) -> list[Placed]:
    """Who of the `allowed` may leave the rotation now.

    Those who serve nobody anyway come first, and who is held can go at once. One member always goes on
    serving, unless there is only one, or all change at once.
    """
    names = set(allowed)
    behind = [placed for placed in everybody if placed.place is Place.BEHIND and placed.name in names]
    if all_at_once:
        return behind
    chosen = [placed for placed in behind if placed.holds]
    out = sum(placed.place in (Place.BUSY, Place.HELD, Place.AWAY) for placed in everybody)
    serving = sum(placed.serves for placed in everybody)
    alone = is_alone(everybody)
    free = max_unavailable - out
    for placed in sorted(behind, key=lambda each: each.seen.leasable):
        if free <= 0:
            break
        if placed.holds:
            continue
        if placed.serves and not alone:
            if serving <= 1:
                continue
            serving -= 1
        free -= 1
        chosen.append(placed)
    return chosen


def is_alone(everybody: Sequence[Placed]) -> bool:
    """There is one member only, so that none can serve while it changes."""
    return sum(placed.place is not Place.GONE for placed in everybody) == 1


def names_of(everybody: Iterable[Placed], *places: Place) -> list[str]:
    """Members that stand there."""
    return [placed.name for placed in everybody if placed.place in places]


def preparing_of(seen: Seen, target: Weights) -> PrepareStatus | None:
    """How far a member is with fetching these weights; None: it was not told to.

    Before it knows their digest, an agent calls them by their number alone.
    """
    got = seen.status.preparing if seen.status is not None else None
    return got if got is not None and got.version in (target.label, f"v{target.number}") else None
