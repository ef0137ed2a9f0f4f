"""A consistent-hash ring with bounded load, for policies that send like to like.

A key belongs to the member whose point on the ring follows it; a member that has more than its bound is
passed over for the next. The bound is `load_factor` times the mean number of requests in flight, plus
one (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads", 2018). When one of n
members comes or goes, about 1/n of the keys move. Nothing is kept for a key, so nothing grows.

Hashes are the same in every process and after every restart. A key's is a CRC-32, spread over the ring by
multiplication (Knuth 6.4): prompts that were chosen to collide are held by the bound like any other crowd.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from hashlib import shake_128
from struct import unpack
from zlib import crc32

from gateway.routing.contract import Candidate

POINTS = 256
"""Points of a member: shares then differ by about 6 %, which the bound on load evens out."""

MOST_POINTS = 32_768
"""Of the whole ring: building it takes about 20 ms then. In a larger fleet each member has fewer."""

WALK = 64
"""Points looked at beyond a key's own. With a bound on load at least a fifth of the members are within it."""

GROUP = 16
"""Members whose load is read again for each choice, in turn; the mean is exact up to this many members."""

_OWNER_BITS = 16
_OWNER = (1 << _OWNER_BITS) - 1
_RING = (1 << 60) - 1
"""Positions have 60 bits: Python compares them fastest."""
_SPREAD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio."""


def key_of(data: bytes) -> int:
    """Where the data lies on the ring."""
    return crc32(data) * _SPREAD & _RING


class Ring:
    """Built for a fixed set of members; reads their present load at each choice."""

    __slots__ = ("_factor", "_groups", "_members", "_next_group", "_points", "_seen", "_shares", "_total")

    def __init__(self, members: Sequence[Candidate], labels: Sequence[str], load_factor: float) -> None:
        """`labels` name the members on the ring: one whose label changes takes different keys."""
        if len(members) > _OWNER:
            raise ValueError(f"a ring holds at most {_OWNER} members, not {len(members)}")
        self._members = tuple(members)
        self._factor = load_factor
        weight = sum(member.weight for member in members)
        self._shares = [member.weight / weight for member in members]
        self._points = _points(members, labels)
        self._groups = [self._members[at : at + GROUP] for at in range(0, len(self._members), GROUP)]
        self._seen = [0] * len(self._groups)
        self._total = 0
        self._next_group = 0
        for _ in self._groups:
            self._read_loads()

    def pick(self, key: int, excluded: Collection[str] = ()) -> Candidate | None:
        """The key's member, or the next that is usable and within its bound; None if none is near."""
        points = self._points
        if not points:
            return None
        self._read_loads()
        room = self._factor * (self._total + 1)
        start = bisect_left(points, key, 0, len(points) - WALK)
        for at in range(start, start + WALK):
            owner = points[at] & _OWNER
            member = self._members[owner]
            in_flight = member.in_flight
            if (
                in_flight <= room * self._shares[owner]
                and in_flight < member.limit
                and not (excluded and member.name in excluded)
            ):
                return member
        return None

    def _read_loads(self) -> None:
        """Bring one group's part of the total up to date."""
        group = self._next_group
        load = 0
        for member in self._groups[group]:
            load += member.in_flight
        self._total += load - self._seen[group]
        self._seen[group] = load
        self._next_group = (group + 1) % len(self._groups)


def _points(members: Sequence[Candidate], labels: Sequence[str]) -> list[int]:
    """Positions in order, the owner's index in their lowest bits; the first `WALK` again at the end.

    Of one member, fewer points are a part of more.
    """
    if not members:
        return []
    heaviest = max(member.weight for member in members)
    most = min(POINTS, max(8, MOST_POINTS // len(members)))
    points: list[int] = []
    for owner, (member, label) in enumerate(zip(members, labels, strict=True)):
        count = max(1, round(most * member.weight / heaviest))
        hashes: tuple[int, ...] = unpack(f">{count}Q", shake_128(label.encode()).digest(count * 8))
        points += [hashed >> 4 & ~_OWNER | owner for hashed in hashes]
    points.sort()
    laps = -(-WALK // len(points))
    return points + (points[:WALK] * laps)[:WALK]
