"""The members in rotation by the weights they serve, and how requests are spread over versions that differ.

Made anew with each rotation. A part's chooser is made when it is first asked for: most fleets serve one
version and never need one. Pure. Caller: `gateway.fleet.fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from backends.versions import number_of
from gateway.fleet.member import Member
from gateway.routing.contract import Chooser


@dataclass(frozen=True, slots=True)
class Part:
    """The members in rotation that serve one version."""

    label: str
    members: tuple[Member, ...]
    choose: Chooser

    @property
    def mark(self) -> bytes:
        """The label as it stands in headers."""
        return self.members[0].version_mark

    @property
    def free(self) -> int:
        """Requests that they may have beyond those they have."""
        return sum(max(0, member.limit - member.in_flight) for member in self.members)

    @property
    def slots(self) -> int:
        """Requests that they may have in all."""
        return sum(member.limit for member in self.members)


class Parts:
    """A rotation, divided by version."""

    def __init__(self, members: Sequence[Member], make: Callable[[str, Sequence[Member]], Part]) -> None:
        groups: dict[str, list[Member]] = {}
        for member in members:
            groups.setdefault(member.version, []).append(member)
        self._groups = groups
        self._make = make
        self._made: dict[str, Part] = {}
        self._total = len(members)

    @property
    def labels(self) -> Collection[str]:
        """Each once."""
        return self._groups.keys()

    @property
    def groups(self) -> Collection[Sequence[Member]]:
        return self._groups.values()

    def find(self, label: str) -> Part | None:
        """Its members; None if no member in rotation serves it."""
        made = self._made.get(label)
        if made is None and label in self._groups:
            made = self._made[label] = self._make(label, self._groups[label])
        return made

    def roomiest(self, labels: Collection[str]) -> str:
        """Of these, all in rotation, the one with the most room."""
        return max(
            labels, key=lambda label: (part.free if (part := self.find(label)) is not None else 0, label)
        )

    def home_of(self, digest: bytes) -> str:
        """The version that is to answer this question while several are served: each gets as much as it has
        members, equal questions go the same way, and those that went to the newer one stay there as it grows.

        Only while any is served.
        """
        place = int.from_bytes(digest[:8], "big") * self._total >> 64
        newest_first = sorted(self._groups, key=_age)
        for label in newest_first:
            place -= len(self._groups[label])
            if place < 0:
                return label
        return newest_first[-1]


def _age(label: str) -> tuple[int, str]:
    number = number_of(label)
    return (-number if number is not None else 1, label)
