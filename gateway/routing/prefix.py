"""Prompts that begin alike go to the same member, whose prefix cache then knows the beginning.

A member's place on the ring depends on its version too: when its weights change its cache is worthless,
and so is every affinity to it. Requests without a prefix go where the load is least.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

from gateway.routing.contract import Candidate, Chooser, Hint
from gateway.routing.least_load import least_load
from gateway.routing.ring import Ring, key_of
from gateway.settings.tree import Routing


def prefix(members: Sequence[Candidate], options: Routing, random: Random) -> Chooser:
    ring = Ring(members, [f"{member.name}\0{member.version}" for member in members], options.load_factor)
    otherwise = least_load(members, options, random)
    length = options.prefix_chars

    def choose(hint: Hint, excluded: Collection[str] = ()) -> Candidate | None:
        if not hint.prefix:
            return otherwise(hint, excluded)
        return ring.pick(key_of(hint.prefix[:length]), excluded) or otherwise(hint, excluded)

    return choose
