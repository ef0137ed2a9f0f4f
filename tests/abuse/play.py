"""Performs a script, and looks after each step whether everything is as it must be.

`play` answers what was violated, in words; empty is good. It never raises for what the gateways do.
Requests that are not waited for go on beside the next steps; at the end everything is healed, and then
everything must serve again, every count be 0, and every request have ended exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from backends.contract import State
from backends.fake import Behaviour
from backends.fake.trouble import Manner, Trouble
from backends.versions import BASE
from tests.abuse import steps
from tests.abuse.client import Ended, Seen, send
from tests.abuse.steps import ENGINES, GATEWAYS, Ask, Client, RedisFault, Step, as_code
from tests.abuse.truth import GRACE_S, STRANGER, Book, account, failed, judge
from tests.abuse.world import HEALS_S, NO_PROBE_PASSES, Ground, World, heal_redis, kinds_of_tasks, world
from tests.drivers.raw import Response, ask
from tests.drivers.waiting import eventually, paced
from tests.gateway.rollout.rolled import ADMIN

SETTLES_S = 15.0
"""After it was asked, a count is true within this, even on a busy machine."""
SPARE_TASKS = 4
"""Look-ups, probes and connections that come and go."""


@dataclass(slots=True)
class Sent:
    """A request under way, or ended."""

    name: str
    ask: Ask
    gateway: int
    life: int
    """Which gateway of this number; a request whose gateway ended may fail."""
    spared: bool
    """Nothing has harmed an engine so far, so it must not fail."""
    seen: Seen | None = None


@dataclass(slots=True)
class Play:
    """One performance."""

    here: World
    violations: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    book: Book = field(default_factory=Book)
    lives: Counter[int] = field(default_factory=Counter)
    settings: list[str] = field(default_factory=lambda: ["as before"] * GATEWAYS)
    harmed: bool = False
    atomic: bool = False
    redis_harmed: bool = False

    def violated(self, what: str) -> None:
        self.violations.append(what)

    # -- requests

    async def ask(self, step: Ask) -> None:
        """Send them, and wait for them if that is wanted."""
        begun = [self._begin(step) for _ in range(step.count)]
        if step.wait:
            await asyncio.gather(*begun)

    def _begin(self, step: Ask) -> asyncio.Task[None]:
        self.book.note(step)
        spared = not self.harmed and not (self.atomic and self.redis_harmed)
        sent = Sent(f"q{len(self.sent)}", step, step.gateway, self.lives[step.gateway], spared)
        self.sent.append(sent)
        task = asyncio.get_running_loop().create_task(self._run(sent), name=f"client:{sent.name}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _run(self, sent: Sent) -> None:
        url = self.here.gateways[sent.gateway].url
        try:
            async with asyncio.timeout(sent.ask.limit_s + 2 * GRACE_S):
                seen = await send(url, sent.ask, sent.name)
        except TimeoutError:
            self.violated(
                f"{sent.name} {as_code(sent.ask)}: no end within {sent.ask.limit_s + 2 * GRACE_S:g} s"
            )
            sent.seen = Seen(Ended.LEFT)
            return
        sent.seen = seen
        for wrong in judge(sent.ask, seen, self.book):
            self.violated(f"{sent.name} {as_code(sent.ask)}: {wrong}")
        if self._must_succeed(sent) and failed(sent.ask, seen):
            shown = bytes(seen.content[:300]).decode(errors="replace")
            how = f"{seen.ended.name} {seen.status} {seen.fault} {shown}"
            self.violated(f"{sent.name} {as_code(sent.ask)}: failed though no engine was harmed: {how}")

    def _must_succeed(self, sent: Sent) -> bool:
        asked = sent.ask
        patient = asked.limit_s >= 4 and asked.client is not Client.SLOWLY
        undisturbed = sent.life == self.lives[sent.gateway]
        return (
            sent.spared
            and not self.harmed
            and patient
            and undisturbed
            and not asked.wish
            and asked.least is None
        )

    # -- everything else

    async def perform(self, step: Step) -> None:
        """Do what the step says."""
        if isinstance(step, steps.ENGINE_FAULTS):
            self.harmed = True
            await self._harm(step)
            return
        match step:
            case Ask():
                await self.ask(step)
            case steps.Pause(seconds):
                await paced(seconds)
            case steps.Redis(fault):
                self.redis_harmed = True
                self._redis(fault)
            case steps.RollOut(gateway, version, mode):
                self.atomic |= mode == "atomic"
                # A canary whose mode is asked for by another gateway is as good.
                await self._admin(gateway, "/admin/rollouts", {"version": str(version), "mode": mode})
            case steps.Order(gateway, what):
                await self._admin(gateway, f"/admin/rollouts/current/{what}", {})
            case steps.Reload(gateway, what):
                self.harmed |= what in ("fewer places", "one engine less", "no retries")
                await self._reload(gateway, what)
            case steps.Replace(gateway):
                await self._replace(gateway)

    async def _harm(self, step: Step) -> None:
        here = self.here
        match step:
            case steps.Behave(engine, trouble):
                fake = here.fakes[engine]
                fake.behave(msgspec.structs.replace(fake.behaviour, rules=steps.TROUBLES[trouble]))
            case steps.Crash(engine, with_agent):
                (await here.settled(engine)).crash(agent=with_agent)
            case steps.Freeze(engine, seconds):
                here.fakes[engine].freeze(seconds)
            case steps.OldVersion(engine, version):
                if (await here.settled(engine)).gone:
                    return  # a stranger is there
                await here.fakes[engine].kill()
                here.fakes[engine].engine.serve(here.label(version))
                await here.fakes[engine].start_again()
            case steps.Stranger(engine, says):
                agent = await here.settled(engine)
                fake = here.fakes[engine]
                fake.behave(msgspec.structs.replace(fake.behaviour, announce_version=says))
                await agent.lose_address(STRANGER)
            case steps.Back(engine):
                await self._back(engine)
            case steps.AgentTrouble(engine, phase, how):
                self.here.agents[engine].behave(
                    Manner((NO_PROBE_PASSES, Trouble(phase, how)), phase_s=0.01, restart_s=0.05)
                )

    async def _back(self, engine: int) -> None:
        agent, fake = self.here.agents[engine], self.here.fakes[engine]
        if agent.gone and agent.status().state is not State.RESTARTING:
            fake.behave(Behaviour())
            agent.crash(agent=True)
            await self.here.settled(engine)

    def _redis(self, fault: RedisFault) -> None:
        redis = self.here.redis
        running = redis.alive
        match fault:
            case RedisFault.KILL if running:
                redis.thaw()
                redis.kill()
            case RedisFault.START if not running:
                redis.start()
            case RedisFault.FREEZE if running:
                redis.freeze()
            case RedisFault.THAW if running:
                redis.thaw()
            case RedisFault.FORGET:
                heal_redis(redis, forget=True)

    async def _admin(self, gateway: int, path: str, body: dict[str, str]) -> Response | None:
        headers = [("authorization", f"Bearer {ADMIN}")]
        content = msgspec.json.encode(body)
        try:
            async with asyncio.timeout(3 * GRACE_S):
                answer = await ask(
                    self.here.gateways[gateway].url, path, content, method="POST", headers=headers
                )
        except TimeoutError:
            self.violated(f"{path} {body}: no answer")
            return None
        if answer.status >= 500 and answer.status != 503:
            self.violated(f"{path} {body}: {answer.status} {answer.body[:300]!r}")
        return answer

    async def _reload(self, gateway: int, what: str) -> None:
        here = self.here
        match what:
            case "fewer places":
                made = here.settings(limits={"max_in_flight": 2, "max_queued": 2, "max_queue_s": 0.2})
            case "no retries":
                made = here.settings(retries={"attempts": 0, "continuation": "off"})
            case "one engine less":
                made = here.settings(slice(0, ENGINES - 1))
            case "prefix":
                made = here.settings(routing={"policy": "prefix"})
            case "batches off":
                made = here.settings(batching={"mode": "off"})
            case "broken":
                made = {**here.settings(), "limits": {"max_in_flight": "many"}}
            case _:
                made = here.settings()
        if what == self.settings[gateway]:
            return
        self.settings[gateway] = what
        try:
            await here.gateways[gateway].reconfigure(made)
        except AssertionError as error:
            self.violated(f"settings {what!r}: {error}")

    async def _replace(self, gateway: int) -> None:
        self.lives[gateway] += 1
        ended = self.here.gateways[gateway]
        await self._guarded(self.here.shut(gateway), "the gateway ends")
        left = [line for line in ended.leftovers() if "connections" not in line]
        if left:
            self.violated(f"a gateway has ended with {left}")
        await self.here.open(gateway)
        self.settings[gateway] = "as before"

    async def _guarded(self, work: Awaitable[object], what: str) -> None:
        try:
            await work
        except AssertionError as error:
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            self.violated(f"{what}: {error}{cause}"[:2000])

    # -- what must be true

    async def counts_are_true(self, within: float = SETTLES_S) -> None:
        """No gateway has more under way than clients wait for, and nothing is below 0."""

        def true() -> bool:
            for index, gateway in self.here.gateways.items():
                waiting = sum(
                    s.gateway == index and (s.seen is None or s.seen.ended is Ended.REFUSED)
                    for s in self.sent
                )
                service = gateway.service
                counts = [service.admission.in_flight, service.admission.queued, service.admission.tokens]
                counts += [count for member in gateway.members for count in (member.in_flight, member.tokens)]
                assert min(counts) >= 0, counts
                assert sum(member.in_flight for member in gateway.members) <= waiting, counts
                assert service.admission.in_flight + service.admission.queued <= waiting, (counts, waiting)
            return True

        await self._guarded(eventually(true, within=within), "counts")

    async def ends_well(self) -> None:
        """Heal everything; then everything must serve, rest, and be accounted for."""
        await self._clients_end()
        await self._heal()
        await self._guarded(self._rollouts_end(), "the rollout ends")
        await self._guarded(self._one_version(), "every engine serves what should be served")
        await self._guarded(self._serves(), "a healed gateway answers")
        await self._clients_end()
        for gateway in self.here.gateways.values():
            await self._guarded(gateway.comes_to_rest(within=SETTLES_S), "rest")
        await self._guarded(eventually(self._engines_rest, within=SETTLES_S), "engines rest")
        await self._guarded(eventually(self._nothing_grew, within=SETTLES_S), "nothing grew")
        self._accounts()

    async def _clients_end(self) -> None:
        while self.tasks:
            await asyncio.gather(*self.tasks)

    async def _heal(self) -> None:
        here = self.here
        heal_redis(here.redis)
        for engine, (fake, agent) in enumerate(zip(here.fakes, here.agents, strict=True)):
            fake.thaw()
            agent.behave(Manner((NO_PROBE_PASSES,), phase_s=0.01, restart_s=0.05))
            await self._back(engine)
            await here.settled(engine)
            fake.behave(Behaviour())
        for index in range(GATEWAYS):
            await self._reload(index, "as before")

    async def _rollouts_end(self) -> None:
        """A canary may wait for requests, a paused one for a word."""
        record = self.here.store.rollouts.read()
        if record is None or not record.active:
            return
        await self._admin(0, "/admin/rollouts/current/resume", {})
        await self._admin(1, "/admin/rollouts/current/promote", {})

        def ended() -> bool:
            record = self.here.store.rollouts.read()
            assert record is not None
            assert not record.active, (record.stage, record.reason)
            return True

        await eventually(ended, within=HEALS_S)

    async def _one_version(self) -> None:
        def one() -> bool:
            version = self.here.store.aliases.read("serving").version or BASE
            served = {fake.engine.label for fake in self.here.fakes}
            assert served == {self.here.label(version)}, (served, version)
            known = {member.version for gateway in self.here.gateways.values() for member in gateway.members}
            assert known == served, (known, served)
            return True

        await eventually(one, within=HEALS_S)

    async def _serves(self) -> None:
        await eventually(self.here.all_ready, within=HEALS_S, what="every member is ready")
        self.harmed = self.redis_harmed = False
        for gateway in range(GATEWAYS):
            for form in ("predict", "completions stream"):
                await self.ask(Ask(gateway=gateway, form=form, tokens=3))

    def _engines_rest(self) -> bool:
        running = {fake.name: fake.stats.in_flight for fake in self.here.fakes}
        assert not any(running.values()), running
        return True

    def _nothing_grew(self) -> bool:
        count = len(asyncio.all_tasks())
        assert count <= self.here.tasks + SPARE_TASKS, (count, self.here.tasks, kinds_of_tasks())
        return True

    def _accounts(self) -> None:
        records = self.here.records_by_id()
        for sent in self.sent:
            if sent.seen is not None:
                for wrong in account(sent.ask, sent.seen, records.get(sent.name, [])):
                    self.violated(f"{sent.name} {as_code(sent.ask)}: {wrong}")


async def play(shared: Ground, script: list[Step]) -> list[str]:
    """Perform it in a world of its own. Returns what was violated; stops where something is."""
    found: list[str] = []
    with _complaints() as complaints:
        try:
            async with world(shared) as here:
                playing = Play(here)
                found = playing.violations
                for step in script:
                    await playing.perform(step)
                    await playing.counts_are_true()
                    if playing.violations:
                        break
                await playing.ends_well()
        except Exception as error:
            found.append("".join(traceback.format_exception(error))[-3000:])
    return found + complaints


class _Complaints(logging.Handler):
    """What a gateway says that it never should, as it ends too."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or "does not end" in record.getMessage():
            self._found.append(self.format(record)[-3000:])


@contextmanager
def _complaints() -> Iterator[list[str]]:
    found: list[str] = []
    handler = _Complaints(found)
    logger = logging.getLogger("gateway")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
