"""One model's rollouts in one gateway: look, plan, do; and the split of its requests.

Every worker reads the record and divides its requests accordingly; the one that holds the lease also acts.
Whatever fails in a round is said and tried again in the next: nothing here ends because a store or an agent
does not answer, and no request waits for any of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from checkpoints.errors import ConflictError
from checkpoints.rollouts import Rollout, Stage
from gateway.fleet.member import Member
from gateway.fleet.split import Split
from gateway.fleet.states import LEASABLE
from gateway.flow.shadow import Shadow
from gateway.observe.evidence import VersionEvidence
from gateway.rollout.agents import Agents, Order
from gateway.rollout.canary import shadowed, split
from gateway.rollout.evidence import Evidence
from gateway.rollout.lease import Lease
from gateway.rollout.ledger import Ledger
from gateway.rollout.plan import plan
from gateway.rollout.progress import Progress
from gateway.rollout.steps import Check, Plan, Prepare, Quarantine, Release, Save, Serve, Step, Swap
from gateway.rollout.view import Checked, Seen, View
from gateway.rollout.watch import Book, Recorded
from gateway.settings.rollout import Rollout as Options

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_LOOK_S = 10.0
"""Between two looks at a member while nothing rolls out."""
IN_A_ROW = 12
"""Rounds that may follow each other at once: a decision often makes the next one possible."""


class Fleet(Protocol):
    """What is asked of a fleet."""

    @property
    def members(self) -> Sequence[Member]: ...
    @property
    def known_versions(self) -> set[str]: ...
    def divide(self, split: Split | None) -> None: ...


class InThread(Protocol):
    """Runs what blocks in a thread."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


@dataclass(slots=True)
class Surroundings:
    """What a rollout is given by whoever builds it."""

    fleet: Fleet
    book: Book
    agents: Agents
    lease: Lease
    ledger: Ledger
    shadow: Shadow
    count: Callable[[], Awaitable[Mapping[str, VersionEvidence]]]
    """What was answered by each version until now."""
    by: str
    """Who this gateway is, in records."""


class ModelRollouts:
    """The rollouts of one model."""

    def __init__(self, model: str, options: Options, around: Surroundings, in_thread: InThread) -> None:
        self.model = model
        self.options = options
        self.around = around
        self.recorded = Recorded()
        self.next = "the store has not been read yet"
        self._in_thread = in_thread
        self._progress = Progress()
        self._checked: Checked | None = None
        self._before: tuple[tuple[str, float], Mapping[str, VersionEvidence]] | None = None
        self._leads = False
        self._busy = asyncio.Lock()

    @property
    def leads(self) -> bool:
        return self._leads

    async def round(self) -> bool:
        """Look, and act where this gateway leads. True: look again soon. Raises what the store raises."""
        async with self._busy:
            return await self._round()

    async def look(self, every_s: float) -> View:
        """Everything that is known now, for whoever asks; see `_observe`. Raises what the store raises."""
        async with self._busy:
            await self._read()
            return await self._observe(every_s)

    async def _round(self) -> bool:
        await self._read()
        if not await self.around.lease.hold():
            self._leads = False
            return False
        if not self._leads:
            await self._take_over()
        for _ in range(IN_A_ROW):
            if not await self._lead():
                break
            await self._read()
        return self.around.agents.moving

    async def _read(self) -> None:
        """Read the store."""
        self.recorded = await self._in_thread(self.around.book.read)
        await self._baseline()
        fleet = self.around.fleet
        self.around.ledger.show(self.recorded.record, [member.version for member in fleet.members])
        fleet.divide(split(self.recorded.record, self.recorded.serving, fleet.known_versions))
        self.around.shadow.aim(*shadowed(self.recorded.record))

    async def _observe(self, every_s: float) -> View:
        """Everything that is known now. Asks agents that were not asked for `every_s`."""
        agents, members = self.around.agents, self.around.fleet.members
        controls = {member.name: member.spec.control for member in members}
        await agents.follow({name: at for name, at in controls.items() if at is not None})
        await agents.look(every_s)
        seen = tuple(self._seen(member) for member in members)
        recorded, now = self.recorded, time.time_ns() / 1e9
        return View(
            model=self.model,
            now=now,
            options=self.options,
            record=recorded.record,
            serving=recorded.serving,
            candidate=recorded.candidate,
            members=seen,
            quarantined={digest: entry.reason for digest, entry in recorded.quarantined.items()},
            checked=self._checked,
            evidence=await self._evidence(recorded.record),
            stalled_s=self._progress.note(recorded.record, seen, now),
            by=self.around.by,
        )

    def _seen(self, member: Member) -> Seen:
        agents = self.around.agents
        return Seen(
            name=member.name,
            status=agents.status(member.name),
            agent=member.spec.control is not None,
            leasable=member.health.state in LEASABLE,
            away_s=agents.away_s(member.name),
            version=member.version,
        )

    async def _lead(self) -> bool:
        """One look, one plan, its steps. True: the next plan may be another at once."""
        record = self.recorded.record
        rolling = record is not None and record.active and not record.paused
        view = await self._observe(self.options.poll_s if rolling else IDLE_LOOK_S)
        made = plan(view)
        self._tell(made)
        self.around.ledger.note(view.members)
        return await self._perform(made.steps)

    async def _perform(self, steps: Sequence[Step]) -> bool:
        """In order; agents at the same time. False: nothing was decided, or somebody else decides."""
        orders: list[Order] = [step for step in steps if isinstance(step, Prepare | Swap | Release)]
        others = [step for step in steps if not isinstance(step, Prepare | Swap | Release)]
        for step in others:
            if not self.around.lease.held:
                return False
            try:
                await self._decide(step)
            except ConflictError as error:
                logger.info("%s: %s", self.model, error)
                return False
        if orders and self.around.lease.held:
            for order in orders:
                if isinstance(order, Swap):
                    self.around.ledger.ordered(order.member, order.order.id)
            await self.around.agents.give(orders)
        return bool(others)

    async def _decide(self, step: Step) -> None:
        book, by = self.around.book, self.around.by
        match step:
            case Check(version):
                required = self.options.probe.value == "required"
                served = self.recorded.serving.number
                self._checked = await self._in_thread(
                    lambda: book.check(version, served, probe_required=required)
                )
            case Serve(version, reason):
                await self._in_thread(lambda: book.serve(version, by=by, reason=reason))
            case Quarantine(entry):
                await self._in_thread(lambda: book.store.rollouts.quarantine(entry))
            case Save(record):
                written = await self._in_thread(lambda: book.save(record))
                self._say(written)
                self.around.ledger.ended(written)

    async def _take_over(self) -> None:
        """A new leader: the last decision may lack its journal entry."""
        self._leads = True
        record = self.recorded.record
        if record is not None:
            logger.info("%s: this gateway leads; rollout %s is %s", self.model, record.id, record.stage.value)
            await self._in_thread(lambda: self.around.book.note(record))

    async def _baseline(self) -> None:
        """Count from before the canary gets its share, in every worker: any of them may have to lead."""
        record = self.recorded.record
        if record is None or record.stage is not Stage.CANARY or not (record.share or record.shadow):
            self._before = None
        elif self._before is None or self._before[0] != (record.id, record.since):
            self._before = ((record.id, record.since), await self.around.count())

    async def _evidence(self, record: Rollout | None) -> Evidence | None:
        if record is None or self._before is None or self._before[0] != (record.id, record.since):
            return None
        before, now = self._before[1], await self.around.count()
        parts = split(record, self.recorded.serving, self.around.fleet.known_versions)
        if parts is None:
            return None
        return Evidence(_since(now, before, parts.stable), _since(now, before, parts.candidate))

    def _tell(self, made: Plan) -> None:
        if made.next != self.next and made.steps:
            logger.info("%s: %s", self.model, made.next)
        self.next = made.next

    def _say(self, record: Rollout) -> None:
        bad = record.stage in (Stage.REFUSED, Stage.ROLLING_BACK, Stage.ROLLED_BACK)
        level = logging.WARNING if bad else logging.INFO
        logger.log(
            level, "%s: rollout %s is %s: %s", self.model, record.id, record.stage.value, record.reason
        )


def _since(
    now: Mapping[str, VersionEvidence], before: Mapping[str, VersionEvidence], label: str | None
) -> VersionEvidence | None:
    found = now.get(label) if label is not None else None
    return found.since(before.get(label or "")) if found is not None else None
