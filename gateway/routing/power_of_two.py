"""The less loaded of two members drawn at random.

Two are enough to keep the fullest member within a few requests of the mean (Mitzenmacher, "The power of
two choices in randomized load balancing", 2001), and several gateways that do not know of each other
do not all run to the same idle member, as they would with `least_load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from gateway.routing.contract import Candidate, Chooser
from gateway.routing.sampling import sampled
from gateway.settings.tree import Routing


def power_of_two(members: Sequence[Candidate], options: Routing, random: Random) -> Chooser:
    return sampled(members, 2, random)
