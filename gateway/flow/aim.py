"""Which version a request goes to: decided once, before anything is looked up or sent.

By the client's wish, else by the rollout's split; while members differ and neither is there, a question that
may be shared has a version by its own digest, and everything else goes to any member. A version that has no
member in rotation but may get one is waited for; one that cannot is an error. Pure but for the shares that it
counts. Callers: `gateway.flow.service`, `gateway.flow.lanes`, `gateway.flow.sharing`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import VersionNotFound, VersionNotServed
from gateway.fleet.parts import Parts
from gateway.fleet.split import Role, Shares, Split, Wish

AGAIN_S = 2.0
"""When to ask again for a version that is not served: members change within seconds."""


class Aimed(Protocol):
    """What of a fleet decides."""

    split: Split | None
    shares: Shares
    parts: Parts

    @property
    def known_versions(self) -> set[str]: ...


@dataclass(slots=True, eq=False)
class Aim:
    """Where a request goes."""

    wish: Wish | None = None
    candidate: bool = False
    """Counted out for the candidate, if there still is one."""
    label: str = ""
    """The version; empty: it waits for one."""
    soft: bool = False
    """Another version will do as well."""
    strict: bool = False
    """No other version will do, though its client asked for none: all members change at once."""
    taken_over: bool = False
    """The version that was due has no member in rotation, and this one answers in its place."""

    @property
    def name(self) -> bytes:
        """Equal for requests that may share an answer of the same version, whatever becomes of their call."""
        return str(self.wish).encode() if self.wish is not None else b""

    @property
    def mark(self) -> bytes:
        """The label as it stands in headers."""
        return self.label.encode("latin-1", "replace")

    def admits(self, label: str) -> bool:
        """Whether an answer of these weights will do."""
        wish = self.wish
        if wish is None:
            return not self.strict or label == self.label
        return wish.admits(label) and (wish.role is None or label == self.label)

    def patient(self, fleet: Aimed) -> bool:
        """Whether it waits until its own deadline, and not just as long as requests wait for room."""
        if self.wish is not None and self.wish.least is not None:
            return True
        return fleet.split is not None and fleet.split.atomic


def take_aim(fleet: Aimed, wish: Wish | None, sticky: bytes) -> Aim:
    """The aim of a request that has just come. Raises VersionNotFound."""
    split = fleet.split
    drawn = wish is None and split is not None and fleet.shares.take(split, sticky)
    aim = Aim(wish, drawn)
    settle(aim, fleet)
    return aim


def settle(aim: Aim, fleet: Aimed) -> None:
    """Point it at a version that is in rotation now, or let it wait. Raises VersionNotFound."""
    aim.taken_over = False
    aim.strict = fleet.split is not None and fleet.split.atomic
    if aim.wish is not None:
        aim.label = _wished(aim.wish, fleet)
    elif fleet.split is not None:
        aim.label = _due(aim, fleet.split, fleet.parts)
    else:
        # The split has ended while it waited: whoever is there will do.
        aim.label = fleet.parts.roomiest(fleet.parts.labels) if fleet.parts.labels else ""


def _due(aim: Aim, split: Split, parts: Parts) -> str:
    stable = split.stable or _stands_in(split, parts)
    if not split.divides:
        return stable if stable in parts.labels else ""
    first, second = (split.candidate or "", stable) if aim.candidate else (stable, split.candidate or "")
    if first in parts.labels:
        return first
    if second in parts.labels:
        aim.taken_over = True
        return second
    return ""


def _stands_in(split: Split, parts: Parts) -> str:
    """The stable version where the split names none."""
    others = [label for label in parts.labels if label != split.candidate]
    return parts.roomiest(others) if others else ""


def _wished(wish: Wish, fleet: Aimed) -> str:
    labels = [label for label in _of_role(wish, fleet) if wish.admits(label)]
    served = [label for label in labels if label in fleet.parts.labels]
    if served:
        stable = fleet.split.stable if fleet.split is not None else None
        return stable if stable in served else fleet.parts.roomiest(served)
    if labels or (wish.least is not None and not wish.label and wish.role is not Role.CANDIDATE):
        return ""  # out of rotation for a moment, or not published yet
    raise VersionNotFound(
        f"No engine here serves version {str(wish)!r}. {_listed(fleet)}", param="x-model-version"
    )


def _of_role(wish: Wish, fleet: Aimed) -> Collection[str]:
    """Every version that may be meant, served at this moment or not."""
    split = fleet.split
    if wish.role is Role.CANDIDATE:
        return [split.candidate] if split is not None and split.candidate is not None else []
    named = {split.stable, split.candidate} - {None} if split is not None else set()
    if wish.role is Role.SERVING and split is not None:
        if split.stable is not None:
            return [split.stable]
        return fleet.known_versions - {split.candidate or ""}
    return fleet.known_versions | {label for label in named if label is not None}


def not_served(aim: Aim, fleet: Aimed) -> VersionNotServed:
    """The error for a request that waited in vain."""
    wanted = f"version {str(aim.wish)!r}" if aim.wish is not None else "the version that is due"
    return VersionNotServed(f"No engine serves {wanted} now. {_listed(fleet)}", retry_after_s=AGAIN_S)


def _listed(fleet: Aimed) -> str:
    labels = sorted(fleet.parts.labels)[:20]
    return f"Served: {', '.join(labels)}." if labels else "None is served at this moment."
