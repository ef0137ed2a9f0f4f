"""What a routing policy sees and what it answers.

A policy is a function that is given the members in rotation each time they change, and returns a
chooser for them. A chooser reads the members' present loads and picks one; it does no I/O, keeps no
state that grows, and is called once for each attempt, on the hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from gateway.settings.tree import Routing


class Candidate(Protocol):
    """A member of the fleet, as far as routing is concerned."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str:
        """The weights it serves; affinity is void when it changes."""

    @property
    def weight(self) -> float:
        """Relative capacity, above 0."""

    @property
    def in_flight(self) -> int:
        """Requests leased on it now."""

    @property
    def tokens(self) -> int:
        """Estimated tokens of those requests."""

    @property
    def limit(self) -> int:
        """Most requests in flight it may have; at the limit it is not chosen."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a request says about where it belongs."""

    prefix: bytes = b""
    """The first part of the prompt; empty: none."""
    session: str = ""
    """The session's name; empty: none."""


class Chooser(Protocol):
    def __call__(self, hint: Hint, excluded: Collection[str] = ()) -> Candidate | None:
        """Pick a member that is not excluded by name and not at its limit; None if there is none."""


Policy = Callable[[Sequence[Candidate], Routing, Random], Chooser]
