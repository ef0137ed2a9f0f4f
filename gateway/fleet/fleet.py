"""The members of one model: who they are, who may get requests, and who gets the next one.

The thin shell around `health`, `rotation` and `routing`: it applies their verdicts, keeps the chooser
for the present rotation, and tells its listener when members become ready or stop being so. It is the
only place where members come and go. Everything runs on one event loop; nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from gateway.fleet.evidence import Transition
from gateway.fleet.health import MemberHealth
from gateway.fleet.member import UNVERSIONED, Lease, Member, Spec
from gateway.fleet.parts import Part, Parts
from gateway.fleet.rotation import Rotation, in_rotation
from gateway.fleet.split import Shares, Split
from gateway.fleet.states import Event, State
from gateway.observe.metrics import Metrics
from gateway.routing.contract import Chooser, Hint
from gateway.routing.registry import POLICIES
from gateway.settings.tree import Health, Routing
from gateway.upstream.pool import Pool

logger = logging.getLogger(__name__)

_LEVELS = {Event.FAILED: logging.WARNING, Event.CONTACT: logging.WARNING, Event.WARMED: logging.DEBUG}


def _nobody() -> None:
    pass


def _ignore(member: Member) -> None:
    pass


@dataclass(slots=True)
class FleetOptions:
    """What of the settings a fleet needs."""

    routing: Routing
    health: Health
    max_in_flight_per_member: int
    connect_s: float


class Fleet:
    """One model's members."""

    def __init__(self, model: str, options: FleetOptions, metrics: Metrics, random: Random) -> None:
        self.model = model
        self.options = options
        self._metrics = metrics
        self._series = metrics.model(model)
        self._random = random
        self._members: dict[str, Member] = {}
        self._left: list[Member] = []
        """Those that were removed and on which something may still run."""
        self._rotation: Rotation[Member] = Rotation((), last_resort=False)
        self._choose = self._chooser(())
        self._wake_at = inf
        self.sole_version = b""
        """The weights that all members in rotation serve; empty where they differ, or there are none."""
        self.split: Split | None = None
        """How a rollout divides requests between versions; None: any member may have any request."""
        self.shares = Shares()
        self.parts = Parts((), self._part_of)
        """The members in rotation by what they serve."""
        self.plain = True
        """Whether a request without a wish may go to any member, and gets the same weights on each: there is
        no split, and nobody in rotation serves anything else."""
        self.width = 0
        """Members in rotation."""
        self.has_agents = False
        """Whether any member has an agent beside it."""
        self.on_change: Callable[[], None] = _nobody
        """Called after the rotation has changed."""
        self.on_names: Callable[[], None] = _nobody
        """Called when a member has said which names it answers to."""
        self.on_ejected: Callable[[Member], None] = _ignore
        """Called when a member is found faulty: requests that wait for its first byte had better move."""

    def __repr__(self) -> str:
        return f"<Fleet {self.model} members={list(self._members.values())}>"

    @property
    def members(self) -> Sequence[Member]:
        return tuple(self._members.values())

    @property
    def ready(self) -> bool:
        """Whether a request can be leased to anyone at all."""
        return bool(self._rotation.members)

    @property
    def slots(self) -> int:
        """Requests that may run in all: what members in rotation may have, and what others still have.

        0 while none is in rotation. A request that ends on a member outside takes nothing from the others.
        """
        inside = self._rotation.members
        if not inside:
            return 0
        outside = (
            member.in_flight for member in (*self._members.values(), *self._left) if member not in inside
        )
        return sum(member.limit for member in inside) + sum(outside)

    @property
    def versions(self) -> list[str]:
        """The weights that members in rotation serve, each once."""
        return sorted(self.parts.labels)

    @property
    def known_versions(self) -> set[str]:
        """The weights that members served when they were last heard of, in rotation or not."""
        return {member.version for member in self._members.values()}

    @property
    def learnt_names(self) -> set[str]:
        """Every model name that some member says it answers to."""
        return {name for member in self._members.values() for name in member.models}

    @property
    def names(self) -> set[str]:
        """The names that mean this model: its own, and those its members answer to."""
        return {self.model, *self.learnt_names}

    # Requests

    def lease(self, hint: Hint, tokens: int, tried: Collection[str] = ()) -> Lease | None:
        """A place on a member that was not tried yet, or None."""
        chosen = self._choose(hint, tried)
        return self._members[chosen.name].lease(tokens) if chosen is not None else None

    def lease_at(self, label: str, hint: Hint, tokens: int, tried: Collection[str] = ()) -> Lease | None:
        """The same on a member that serves this version."""
        part = self.parts.find(label)
        chosen = part.choose(hint, tried) if part is not None else None
        return self._members[chosen.name].lease(tokens) if chosen is not None else None

    def divide(self, split: Split | None) -> None:
        """A rollout's word on who gets what; may be said again and again."""
        if split != self.split:
            logger.info("%s: requests are divided by %s (was %s)", self.model, split, self.split)
            self.split = split
            self._rebuild()

    # Members come and go

    def apply(self, specs: Iterable[Spec], now: float) -> tuple[list[Member], list[Member]]:
        """Make the membership equal to `specs`. Returns who came and who went.

        A member whose address or key changed counts as gone and come again.
        """
        wanted = {spec.name: spec for spec in specs}
        gone = [member for name, member in self._members.items() if wanted.get(name) != member.spec]
        for member in gone:
            del self._members[member.name]
            self._log(member, member.health.remove(now))
            member.retire()
        self._left = [member for member in (*self._left, *gone) if member.in_flight]
        come = [self._admit(spec, now) for name, spec in wanted.items() if name not in self._members]
        self.has_agents = any(member.spec.control is not None for member in self._members.values())
        if gone or come:
            self._rebuild()
        return come, gone

    def _admit(self, spec: Spec, now: float) -> Member:
        member = Member(
            spec,
            MemberHealth(self.options.health, now, self._random),
            Pool(spec.address, connect_s=self.options.connect_s),
            self._metrics.member_series(self.model, spec.name),
            self.options.max_in_flight_per_member,
        )
        member.series.state(State.STARTING)
        self._members[spec.name] = member
        return member

    def reconfigure(self, options: FleetOptions) -> None:
        """New options for members present and future; nothing in flight notices."""
        self.options = options
        for member in self._members.values():
            member.health.options = options.health
            self._limit(member)
            member.pool.connect_s = options.connect_s
        self._rebuild()

    # Evidence

    def note(self, member: Member, transition: Transition | None) -> None:
        """A verdict has come in; performs what it means."""
        if transition is None or member.retired:
            self._wake_at = min(self._wake_at, member.health.wake_at)
            return
        self._log(member, transition)
        self._limit(member)
        if transition.event is Event.WARMED:
            self._wake_at = min(self._wake_at, member.health.wake_at)
            self.on_change()
            return
        member.series.state(transition.after)
        self._rebuild()
        if transition.after is State.EJECTED:
            self.on_ejected(member)

    def tick(self, now: float) -> None:
        """Let time pass: show the leases, and see to members that wait for a trial."""
        for member in (*self._members.values(), *self._left):
            member.show()
        if now < self._wake_at:
            return
        for member in tuple(self._members.values()):
            self.note(member, member.health.tick(now))
        self._plan_wake(now)

    def learn_version(self, member: Member, version: str) -> None:
        """The weights a member said it serves; empty: it names none, whatever it did before."""
        version = version or UNVERSIONED
        if version == member.version:
            return
        logger.info("%s/%s serves version %s (was %s)", self.model, member.name, version, member.version)
        if member.version != UNVERSIONED:
            member.health.changed()
        member.version = version
        member.version_mark = version.encode("latin-1", "replace")
        self._limit(member)
        self._rebuild()

    def learn_names(self, member: Member, names: tuple[str, ...]) -> None:
        member.models = names
        self.on_names()

    def _rebuild(self) -> None:
        before = self._rotation.last_resort
        self._rotation = in_rotation(self.members)
        if self._rotation.last_resort is not before:
            for member in self._members.values():
                self._limit(member)
        self._choose = self._chooser(self._rotation.members)
        self.parts = Parts(self._rotation.members, self._part_of)
        self._spare_no_more()
        self.sole_version = self._rotation.members[0].version_mark if len(self.parts.labels) == 1 else b""
        self.plain = self.split is None and len(self.parts.labels) <= 1
        self.width = len(self._rotation.members)
        self._series.versions.serve(self.parts.labels)
        self._wake_at = min((member.health.wake_at for member in self._members.values()), default=inf)
        self.on_change()

    def _part_of(self, label: str, members: Sequence[Member]) -> Part:
        sole = len(members) == len(self._rotation.members)
        choose = self._choose if sole else self._chooser(members)
        return Part(label, tuple(members), choose)

    def _chooser(self, members: Sequence[Member]) -> Chooser:
        return POLICIES[self.options.routing.policy](members, self.options.routing, self._random)

    def _spare_no_more(self) -> None:
        """Fresh members are spared only as long as others can work in their place."""
        divided = self.parts.groups if self.split is not None else (self._rotation.members,)
        for members in divided:
            if not any(member.health.warm and member.health.state is State.READY for member in members):
                for member in members:
                    member.health.spare_no_more()
                    self._limit(member)

    def _limit(self, member: Member) -> None:
        member.set_limit(self.options.max_in_flight_per_member, last_resort=self._rotation.last_resort)

    def _plan_wake(self, now: float) -> None:
        # A member whose time has come but that nobody can reach is looked at again after a while.
        wake = min((member.health.wake_at for member in self._members.values()), default=inf)
        self._wake_at = wake if wake > now else now + self.options.health.interval_s

    def _log(self, member: Member, transition: Transition | None) -> None:
        if transition is None:
            return
        logger.log(
            _LEVELS.get(transition.event, logging.INFO),
            "%s/%s is %s (was %s): %s",
            self.model,
            member.name,
            transition.after.value,
            transition.before.value,
            transition.reason,
        )
