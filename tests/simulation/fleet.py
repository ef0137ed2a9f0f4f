"""Gateways in front of engines, on one clock that jumps from event to event.

Each gateway knows only what it sent itself, as in life, and decides with the code that serves:
`gateway.routing` chooses, `gateway.fleet.health` ejects. An engine that died refuses; a request that had no
first token goes elsewhere, one that had is counted as broken.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from gateway.fleet.evidence import Kind
from gateway.fleet.health import MemberHealth
from gateway.routing.contract import Hint
from gateway.routing.registry import POLICIES
from gateway.settings.tree import Health, PolicyName, Routing
from tests.simulation.engine import Costs, Engine, Job

MAX_TRIES = 3


@dataclass(slots=True, eq=False)
class View:
    """One engine as one gateway sees it. Satisfies `gateway.routing.contract.Candidate`."""

    engine: Engine
    health: MemberHealth
    name: str
    limit: int
    version: str = "v1"
    weight: float = 1.0
    in_flight: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Outcome:
    """What a run gave."""

    done: list[Job] = field(default_factory=list)
    broken: int = 0
    refused: int = 0
    retries: int = 0
    most_in_flight: int = 0
    choosing_s: float = 0.0
    """Processor time that the policy itself took, all requests."""
    ejected_after_s: list[float] = field(default_factory=list)


class Gateway:
    """One gateway's views and its chooser for those in rotation."""

    def __init__(self, engines: list[Engine], routing: Routing, health: Health, random: Random) -> None:
        self._routing = routing
        self._random = random
        self.views = {
            engine.name: View(engine, MemberHealth(health, 0.0, random), engine.name, engine.limit)
            for engine in engines
        }
        for view in self.views.values():
            view.health.probe_ok(0.0)
        self.rebuild()

    def rebuild(self) -> None:
        """The rotation has changed."""
        inside = [view for view in self.views.values() if view.health.leasable]
        self.choose = POLICIES[self._routing.policy](inside, self._routing, self._random)


class Fleet:
    """Run with `run`; failures are given as (time, engine number)."""

    def __init__(
        self, costs: Costs, engines: int, gateways: int, policy: PolicyName, random: Random, limit: int = 512
    ) -> None:
        self.engines = [Engine(f"e{number}", costs, limit) for number in range(engines)]
        routing = Routing(policy=policy)
        self.gateways = [Gateway(self.engines, routing, Health(), random) for _ in range(gateways)]
        self.outcome = Outcome()
        self._events: list[tuple[float, int, Engine, int]] = []
        self._order = 0
        self._died: dict[str, float] = {}

    def run(self, jobs: Iterable[Job], failures: Iterable[tuple[float, int]] = ()) -> Outcome:
        """Until every request has ended."""
        coming = iter(jobs)
        job = next(coming, None)
        dying = sorted(failures)
        while job is not None or self._events:
            at = self._events[0][0] if self._events else float("inf")
            if dying and dying[0][0] <= min(at, job.arrived if job else at):
                self._kill(self.engines[dying[0][1]], dying.pop(0)[0])
            elif job is not None and job.arrived <= at:
                self._send(job, job.arrived)
                job = next(coming, None)
            else:
                self._end_one()
        return self.outcome

    def _send(self, job: Job, now: float) -> None:
        gateway = self.gateways[job.gateway]
        hint = Hint(prefix=b"%d" % job.prefix) if job.prefix >= 0 else Hint()
        tried: list[str] = []
        while len(tried) < MAX_TRIES:
            began = time.thread_time()
            chosen = gateway.choose(hint, tried)
            self.outcome.choosing_s += time.thread_time() - began
            if chosen is None:
                break
            view = gateway.views[chosen.name]
            if view.engine.alive:
                self._lease(view, job, now)
                return
            tried.append(view.name)
            self.outcome.retries += 1
            if view.health.traffic_failed(now, Kind.REFUSED) is not None and not view.health.leasable:
                self.outcome.ejected_after_s.append(now - self._died[view.name])
                gateway.rebuild()
        self.outcome.refused += 1

    def _lease(self, view: View, job: Job, now: float) -> None:
        view.in_flight += 1
        view.tokens += job.prompt_tokens + job.answer_tokens
        engine = view.engine
        engine.in_flight += 1
        self.outcome.most_in_flight = max(self.outcome.most_in_flight, engine.in_flight)
        engine.take(job, now)
        self._plan(engine)

    def _plan(self, engine: Engine) -> None:
        at = engine.next_end()
        if at != float("inf"):
            self._order += 1
            heappush(self._events, (at, self._order, engine, engine.epoch))

    def _end_one(self) -> None:
        at, _, engine, epoch = heappop(self._events)
        if epoch != engine.epoch:
            return
        job = engine.end_one(at)
        self._release(engine, job)
        self.outcome.done.append(job)
        self._plan(engine)

    def _release(self, engine: Engine, job: Job) -> None:
        engine.in_flight -= 1
        view = self.gateways[job.gateway].views[engine.name]
        view.in_flight -= 1
        view.tokens -= job.prompt_tokens + job.answer_tokens

    def _kill(self, engine: Engine, now: float) -> None:
        self._died[engine.name] = now
        for job in engine.die(now):
            self._release(engine, job)
            if job.first > now:
                job.first = float("inf")
                job.tries += 1
                self.outcome.retries += 1
                self._send(job, now)
            else:
                self.outcome.broken += 1
