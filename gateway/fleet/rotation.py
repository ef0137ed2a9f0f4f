"""Which members may get requests, given the verdicts on all of them.

Pure, and called at each transition of any of them, never for a request. While none is ready the last
ones are used rather than none (B4): probes may be wrong about all of them at once, and more often are
than all engines are broken. Three sorts are never a last resort: one that leaves, one whose weights are
uncertain, and one where nobody listens (there requests had better wait, B11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gateway.fleet.evidence import Cause
from gateway.fleet.health import MemberHealth
from gateway.fleet.states import LAST_RESORT, LEASABLE, State


class HasHealth(Protocol):
    @property
    def health(self) -> MemberHealth: ...


M = TypeVar("M", bound=HasHealth)


@dataclass(frozen=True, slots=True)
class Rotation(Generic[M]):
    members: tuple[M, ...]
    """Those that may get requests; none: requests wait."""
    last_resort: bool
    """None of them is known to be well. Their ordinary limits hold, not `MemberHealth.allowance`."""


def in_rotation(members: Sequence[M]) -> Rotation[M]:
    """The members that may get requests now."""
    leasable = tuple(member for member in members if member.health.state in LEASABLE)
    if any(member.health.state is State.READY for member in leasable):
        return Rotation(leasable, last_resort=False)
    usable = LEASABLE | LAST_RESORT
    reached = [m for m in members if m.health.state in usable and not m.health.refused]
    if not reached:
        return Rotation(leasable, last_resort=False)
    moving = [member for member in reached if member.health.cause is not Cause.STALL]
    return Rotation(tuple(moving or reached), last_resort=True)
