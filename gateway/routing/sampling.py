"""The least loaded of a few members drawn at random: the cost of a choice does not grow with the fleet.

Each request draws its candidates by double hashing: one random number gives a start and a stride through
the members. That balances as well as independent draws (Mitzenmacher, "Balanced allocations and double
hashing", 2014), at one draw. A member of twice the weight stands in twice the places.
Used by `least_load` for large fleets and by `power_of_two`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from random import Random

from gateway.routing.contract import Candidate, Chooser, Hint

PLACES_PER_MEMBER = 16
"""The most places a member's weight can give it on average: bounds the table when weights differ much."""


def least_loaded(members: Iterable[Candidate], excluded: Collection[str]) -> Candidate | None:
    """The usable member with the least load for its weight; of equals, with fewer tokens, or the first."""
    best: Candidate | None = None
    best_load = inf
    for member in members:
        in_flight = member.in_flight
        if in_flight >= member.limit or (excluded and member.name in excluded):
            continue
        load = in_flight / member.weight
        if load < best_load or (load == best_load and best is not None and member.tokens < best.tokens):
            best = member
            best_load = load
    return best


def sampled(members: Sequence[Candidate], draws: int, random: Random) -> Chooser:
    """The least loaded of `draws` members. All are looked at only if none of those drawn is usable."""
    places = _places(members)
    count = len(places)
    strides = max(1, count - 1)
    steps = range(1, draws)
    draw = random.random

    def choose(hint: Hint, excluded: Collection[str] = ()) -> Candidate | None:
        if not count:
            return None
        where = draw() * count
        index = int(where)
        stride = 1 + int((where - index) * strides)
        drawn = [places[index]]
        for _ in steps:
            index = (index + stride) % count
            drawn.append(places[index])
        return least_loaded(drawn, excluded) or least_loaded(members, excluded)

    return choose


def _places(members: Sequence[Candidate]) -> Sequence[Candidate]:
    """Members in proportion to their weights, each at least once."""
    if not members:
        return ()
    lightest = min(member.weight for member in members)
    total = sum(member.weight for member in members)
    unit = max(lightest, total / (PLACES_PER_MEMBER * len(members)))
    return [member for member in members for _ in range(max(1, round(member.weight / unit)))]
