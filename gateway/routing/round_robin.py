"""Members in turn, each as often as its weight says, whatever their load.

Earliest deadline first: each member is due again 1/weight after its last turn, and the one that is due
first is next; so shares are exact to within a request, and the turns of each are evenly spaced. A member
that is excluded (by a retry) keeps its turn; one at its limit loses it, and does not catch up in a burst.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from random import Random

from gateway.routing.contract import Candidate, Chooser, Hint
from gateway.settings.tree import Routing


def round_robin(members: Sequence[Candidate], options: Routing, random: Random) -> Chooser:
    pace = [1 / member.weight for member in members]
    # A random start: were it the same each time, a fleet that changes often would favour its first members.
    due = [(random.random() * pace[index], index) for index in range(len(members))]
    heapify(due)

    def choose(hint: Hint, excluded: Collection[str] = ()) -> Candidate | None:
        if due:
            at, index = due[0]
            member = members[index]
            if member.in_flight < member.limit and not (excluded and member.name in excluded):
                heapreplace(due, (at + pace[index], index))
                return member
        return _pass_over(members, due, pace, excluded)

    return choose


def _pass_over(
    members: Sequence[Candidate], due: list[tuple[float, int]], pace: list[float], excluded: Collection[str]
) -> Candidate | None:
    """The first in turn that is usable."""
    passed: list[tuple[float, int]] = []
    chosen: Candidate | None = None
    while due and chosen is None:
        at, index = heappop(due)
        member = members[index]
        if member.name in excluded:
            passed.append((at, index))
            continue
        passed.append((at + pace[index], index))
        if member.in_flight < member.limit:
            chosen = member
    for turn in passed:
        heappush(due, turn)
    return chosen
