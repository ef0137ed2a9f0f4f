"""A simulated fleet with its store: what a plan says is done, time passes as told, and members fail as told.

Everything is in memory and exact: no clock, no I/O. A `Machine` is one engine with its agent as the contract
describes it. `World.step` is one round of a leader; `World.run` goes on until the rollout has ended and every
member that lives serves what should be served.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed

from msgspec.structs import replace

from backends.contract import (
    BackendStatus,
    Outcome,
    Phase,
    PrepareStatus,
    State,
    SwapOrder,
    SwapStatus,
    Way,
)
from checkpoints.rollouts import Quarantined, Rollout, Stage
from gateway.rollout.evidence import Evidence
from gateway.rollout.plan import plan
from gateway.rollout.progress import Progress
from gateway.rollout.steps import Check, Plan, Prepare, Quarantine, Release, Save, Serve, Step, Swap
from gateway.rollout.view import BASE_MODEL, Checked, Seen, View, Weights
from gateway.settings.rollout import Rollout as Options

BASE = "base-00000000"
GOOD, OLD, PROBE, DIES, HANGS, CRASHES = "good", "old", "probe", "dies", "hangs", "crashes"
"""How a swap goes: well; back on the old for reasons of its own; the probe fails; the engine dies and comes
back; nothing happens until the deadline; the agent dies too, and remembers nothing."""


def weights(number: int) -> Weights:
    """A version's, as it would be named."""
    return Weights(number, f"v{number}-{number:08x}", f"{number:064x}") if number else BASE_MODEL


def label(number: int) -> str:
    return weights(number).label if number else BASE


@dataclass(slots=True)
class Machine:
    name: str
    version: str = BASE
    agent: bool = True
    drained: bool = False
    """An operator keeps it out of rotation."""
    fixed: bool = False
    """Its agent never changes weights."""
    alive: bool = True
    fates: deque[str] = field(default_factory=deque)
    """How its next swaps go; after that they go well."""
    fetch_s: float = 1.0
    drain_s: float = 1.0
    load_s: float = 1.0
    refuses: str | None = None
    """What it says of any version that it is to prepare."""
    swap: SwapStatus | None = None
    preparing: PrepareStatus | None = None
    restarting_until: float = -1.0
    away_since: float | None = None
    _order: SwapOrder | None = None
    _until: float = 0.0
    _fetched: float = 0.0
    _fate: str = GOOD
    orders: list[SwapOrder] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return self.swap is not None and self.swap.outcome is None

    def serving(self, now: float) -> bool:
        """It answers requests."""
        return self.alive and not self.drained and not self.busy and now >= self.restarting_until

    def prepare(self, number: int, now: float) -> None:
        if self.preparing is None or self.preparing.version not in (label(number), f"v{number}"):
            self.preparing = PrepareStatus(
                f"v{number}", error=self.refuses, condemned=self.refuses is not None
            )
            self._fetched = now + self.fetch_s

    def take(self, order: SwapOrder, now: float) -> None:
        held = self.swap is not None and self.swap.phase is Phase.HELD
        if self.swap is not None and (self.swap.id == order.id or (self.busy and not held)):
            return
        self.orders.append(order)
        self.swap = SwapStatus(order.id, label(order.version), Way.IN_PLACE, Phase.DRAINING)
        self._order = order
        self._fate = self.fates.popleft() if self.fates else GOOD
        lasts = order.deadline_s if self._fate == HANGS else min(self.drain_s, order.wait_s) + self.load_s
        self._until = now + lasts

    def release(self, order_id: str) -> None:
        if self.swap is not None and self.swap.id == order_id and self.swap.phase is Phase.HELD:
            self.swap = changed(self.swap, phase=Phase.ENDED, outcome=Outcome.SERVING_NEW)

    def advance(self, now: float, serving: str) -> None:
        """`serving`: what the store says; an engine that restarts comes back on it."""
        if self.preparing is not None and now >= self._fetched and self.preparing.error is None:
            self.preparing = changed(
                self.preparing, version=label(int(self.preparing.version[1:].partition("-")[0])), ready=True
            )
        if 0 <= self.restarting_until <= now:
            self.restarting_until = -1.0
            self.version = serving
        if self.swap is None or self._order is None or self.swap.outcome is not None:
            return
        if self.swap.phase is Phase.HELD or now < self._until:
            return
        self._end(self.swap, self._order, now)

    def _end(self, swap: SwapStatus, order: SwapOrder, now: float) -> None:
        out = min(self.drain_s, order.wait_s) + self.load_s
        if self._fate == GOOD:
            self.version = label(order.version)
            phase, outcome = (Phase.HELD, None) if order.hold else (Phase.ENDED, Outcome.SERVING_NEW)
            report = {"passed": True, "numbers": {"k3": 0.001}}
            self.swap = changed(swap, phase=phase, outcome=outcome, report=report, out_of_rotation_s=out)
        elif self._fate == PROBE:
            report = {"passed": False, "numbers": {"k3": 3.0}}
            self.swap = changed(
                swap,
                phase=Phase.ENDED,
                outcome=Outcome.SERVING_OLD,
                report=report,
                reason="the probe failed: scale",
            )
        elif self._fate == CRASHES:
            self.swap, self._order = None, None
            self.preparing = None
            self.restarting_until = now + 20
        else:
            dies = self._fate == DIES
            self.swap = changed(
                swap,
                phase=Phase.ENDED,
                outcome=Outcome.RESTARTING if dies else Outcome.SERVING_OLD,
                reason="the engine ended" if dies else "the engine did not take it",
            )
            if dies:
                self.restarting_until = now + 20

    def status(self, now: float) -> BackendStatus | None:
        if not self.alive or not self.agent:
            return None
        state = State.RESTARTING if now < self.restarting_until else State.READY
        if self.drained:
            state = State.DRAINING
        return BackendStatus(
            self.name,
            state,
            "m",
            self.version,
            "",
            "",
            1,
            0,
            None,
            preparing=self.preparing,
            swap=self.swap,
            fixed=self.fixed,
        )


@dataclass(slots=True)
class World:
    machines: list[Machine]
    options: Options = field(default_factory=Options)
    now: float = 1000.0
    record: Rollout | None = None
    serving: int = 0
    candidate: int | None = None
    quarantined: dict[str, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    """What the static check says, by version."""
    checked: Checked | None = None
    evidence: Callable[[World], Evidence | None] = lambda world: None
    stages: list[Stage] = field(default_factory=list)
    """The stages that were written, in order."""
    fewest: int = 10**9
    """Members that served at the worst moment."""
    most_out: int = 0
    rounds: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)
    _told: str = ""

    def machine(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    def publish(self, number: int) -> None:
        self.candidate = number

    def view(self) -> View:
        seen = []
        for machine in self.machines:
            status = machine.status(self.now)
            if (status is not None and not machine.drained) or not machine.agent:
                machine.away_since = None
            elif machine.away_since is None:
                machine.away_since = self.now
            away_s = self.now - machine.away_since if machine.away_since is not None else 0.0
            usable = machine.serving(self.now)
            seen.append(Seen(machine.name, status, machine.agent, usable, away_s, machine.version))
        return View(
            "m",
            self.now,
            self.options,
            self.record,
            weights(self.serving),
            weights(self.candidate) if self.candidate is not None else None,
            tuple(seen),
            dict(self.quarantined),
            self.checked,
            self.evidence(self),
            self.progress.note(self.record, seen, self.now),
            "a",
        )

    def step(self) -> Plan:
        """One round: look, plan, do."""
        made = plan(self.view())
        self.perform(made.steps)
        self.rounds += 1
        self._told = made.next
        return made

    def perform(self, steps: Sequence[Step]) -> bool:
        """False: the record was another by now, and the rest was left."""
        for step in steps:
            self.steps[type(step).__name__] += 1
            match step:
                case Check(version):
                    self.checked = Checked(version, self.refusals.get(version))
                case Prepare(member, version):
                    self.machine(member).prepare(version, self.now)
                case Swap(member, order):
                    if self.machine(member).alive:
                        self.machine(member).take(order, self.now)
                case Release(member, order_id):
                    self.machine(member).release(order_id)
                case Serve(version, _):
                    self.serving = version
                case Quarantine(entry):
                    self._quarantine(entry)
                case Save(record):
                    if not self.save(record):
                        return False
        self._count()
        return True

    def save(self, record: Rollout) -> bool:
        if record.generation != (self.record.generation if self.record is not None else 0):
            return False
        self.record = replace(record, generation=record.generation + 1)
        self.stages.append(record.stage)
        return True

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for machine in self.machines:
            machine.advance(self.now, label(self.serving))
        self._count()

    def run(self, within_s: float = 20_000.0, round_s: float = 1.0) -> World:
        """Until nothing is left to do. Fails if that does not happen."""
        end = self.now + within_s
        while self.now < end:
            made = self.step()
            if not made.steps and self.at_rest():
                return self
            self.advance(round_s)
        raise AssertionError(f"not at rest after {within_s} s: {self._told}; {self.record}")

    def at_rest(self) -> bool:
        """No rollout runs, and who lives serves what should be served."""
        if self.record is not None and self.record.active:
            return False
        living = [machine for machine in self.machines if machine.alive and machine.agent]
        return all(m.serving(self.now) and weights(self.serving).are(m.version) for m in living)

    def kill(self, machine: Machine) -> None:
        """The machine is gone, agent and all."""
        machine.alive = False

    def revive(self, machine: Machine) -> None:
        """It comes up again, remembers nothing, and serves what the store says."""
        machine.alive = True
        machine.swap, machine.preparing = None, None
        machine.version = label(self.serving)
        machine.restarting_until = self.now + 20

    def versions(self) -> Counter[str]:
        return Counter(machine.version for machine in self.machines if machine.alive)

    def _quarantine(self, entry: Quarantined) -> None:
        self.quarantined.setdefault(entry.digest, entry.reason)

    def _count(self) -> None:
        serving = sum(machine.serving(self.now) for machine in self.machines)
        self.fewest = min(self.fewest, serving)
        self.most_out = max(self.most_out, sum(machine.busy for machine in self.machines))


def world(count: int = 3, **options: object) -> World:
    """So many members, all on the base model: a, b, c and so on."""
    names = [chr(97 + i) if count <= 26 else f"member-{i}" for i in range(count)]
    return World([Machine(name) for name in names], Options.model_validate(options))
