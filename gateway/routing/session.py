"""Requests of one session go to the same member, as far as its load allows.

The session's name decides by itself: nothing is remembered, so nothing grows, and every gateway agrees.
A session stays where it is when weights change. Requests without one go where the load is least.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

from gateway.routing.contract import Candidate, Chooser, Hint
from gateway.routing.least_load import least_load
from gateway.routing.ring import Ring, key_of
from gateway.settings.tree import Routing


def session(members: Sequence[Candidate], options: Routing, random: Random) -> Chooser:
    ring = Ring(members, [member.name for member in members], options.load_factor)
    otherwise = least_load(members, options, random)

    def choose(hint: Hint, excluded: Collection[str] = ()) -> Candidate | None:
        if not hint.session:
            return otherwise(hint, excluded)
        key = key_of(hint.session.encode(errors="surrogatepass"))  # a client may send half a character
        return ring.pick(key, excluded) or otherwise(hint, excluded)

    return choose
