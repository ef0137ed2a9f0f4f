"""A fleet for the tests of policies: members whose loads the test sets or lets run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from gateway.routing.contract import Chooser, Hint
from gateway.routing.registry import POLICIES
from gateway.settings.tree import PolicyName, Routing

NO_HINT = Hint()


@dataclass(slots=True)
class FakeMember:
    name: str
    version: str = "v1"
    weight: float = 1.0
    in_flight: int = 0
    tokens: int = 0
    limit: int = 10_000


def fleet(count: int) -> list[FakeMember]:
    return [FakeMember(f"m{index}") for index in range(count)]


def chooser(policy: PolicyName, members: Sequence[FakeMember], seed: int = 1) -> Chooser:
    return POLICIES[policy](members, Routing(policy=policy), Random(seed))


def chosen_names(choose: Chooser, hints: Iterable[Hint]) -> list[str]:
    """Who is chosen for each, while nobody's load changes."""
    return [member.name if (member := choose(hint)) is not None else "nobody" for hint in hints]


@dataclass
class Run:
    counts: Counter[str]
    """Requests of each member."""
    fullest: float
    """The most that a member ever had beyond 1.25 times the mean load (that request included)."""


def run(members: Sequence[FakeMember], choose: Chooser, hints: Iterable[Hint], at_a_time: int) -> Run:
    """Send the requests, at most so many at a time, the oldest ending first."""
    outcome = Run(Counter(), float("-inf"))
    running: deque[FakeMember] = deque()
    for hint in hints:
        if len(running) == at_a_time:
            running.popleft().in_flight -= 1
        member = choose(hint)
        assert isinstance(member, FakeMember)
        member.in_flight += 1
        running.append(member)
        outcome.counts[member.name] += 1
        outcome.fullest = max(outcome.fullest, member.in_flight - 1.25 * len(running) / len(members))
    while running:
        running.popleft().in_flight -= 1
    return outcome
