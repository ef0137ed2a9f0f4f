"""A fake agent beside a fake engine: the real control API and phases, swaps in no time, faults as data.

    async with Fake.start() as fake, FakeAgent.start(fake, versions) as agent:
        AgentClient(agent.url, agent.token) ...

What it tells clients of the engine is what a real one tells: out of rotation the engine answers 503 with
`x-changeover-elsewhere`, a label changes only with the weights, an engine that dies comes back on what
`versions` says should be served.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backends.agent.api import Superseded, control_api
from backends.agent.listening import ControlServer
from backends.agent.orders import Orders
from backends.agent.swaps import Event, after
from backends.agent.tasks import Tasks
from backends.contract import (
    BackendStatus,
    GuardStatus,
    InFlight,
    Outcome,
    Phase,
    PrepareStatus,
    ProbeRule,
    State,
    SwapOrder,
    SwapStatus,
    Way,
)
from backends.fake.server import Fake
from backends.fake.trouble import How, Manner, Troubles
from backends.versions import number_of

TOKEN = "fake-agent-token"  # noqa: S105 (it guards nothing)
POLL_S = 0.002


class Versions(Protocol):
    """What a fake agent knows of the store."""

    def label(self, version: int) -> str:
        """Of a version's weights; raises LookupError if there is no such version."""

    def serving(self) -> int:
        """What should be served; 0: the base."""


class FakeAgent:
    """Made by `start`. `orders` keeps every order that began a swap."""

    def __init__(self, fake: Fake, versions: Versions, manner: Manner, tasks: Tasks) -> None:
        self.fake = fake
        self.token = TOKEN
        self.url = ""
        self.orders: list[SwapOrder] = []
        self.gone = False
        """Its process is dead: nothing answers."""
        self._versions = versions
        self._manner = manner
        self._troubles = Troubles(manner.troubles)
        self._tasks = tasks
        self._swaps = Orders()
        self._released: asyncio.Event = asyncio.Event()
        self._preparing: PrepareStatus | None = None
        self._drained = False
        self._swapping = False
        self._state = State.READY
        self._since = datetime.now(UTC)
        self._restarts = 0
        self._life = 0
        """Grows with each death of engine or agent: what was begun before it has no effect after it."""

    @classmethod
    @asynccontextmanager
    async def start(
        cls, fake: Fake, versions: Versions, manner: Manner | None = None, *, port: int = 0
    ) -> AsyncIterator[Self]:
        """Serve the control API on a port of this machine until the block ends; 0 takes a free one."""
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group, fake.name)
            agent = cls(fake, versions, manner or Manner(), tasks)
            fake.engine.serve(versions.label(versions.serving()))
            listening = socket.create_server(("127.0.0.1", port))
            agent.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            server = ControlServer(agent._application())
            serving = group.create_task(server.serve(sockets=[listening]), name=f"{fake.name}:control")
            try:
                yield agent
            finally:
                server.should_exit = server.force_exit = True
                await serving
                listening.close()
                tasks.cancel()

    def behave(self, manner: Manner) -> None:
        """Behave so from the next phase on."""
        self._manner = manner
        self._troubles = Troubles(manner.troubles)

    def crash(self, *, agent: bool = False) -> None:
        """The engine dies, and its agent with it if told so; both come back by themselves."""
        self._die(agent=agent)

    async def lose_address(self, weights: str) -> None:
        """Another engine with these weights takes the engine's address; the agent is gone. Until `crash`."""
        self._life += 1
        self.gone = True
        await self.fake.kill()
        engine = self.fake.engine
        engine.draining = False
        engine.serve(weights)
        await self.fake.start_again()

    # -- what the control API asks

    def status(self) -> BackendStatus:
        return BackendStatus(
            name=self.fake.name,
            state=self._state,
            model=self.fake.behaviour.model,
            version=self.fake.engine.label,
            since=self._since.isoformat(timespec="milliseconds"),
            detail="",
            pid=None,
            restarts=self._restarts,
            last_error=None,
            wanted=self._versions.label(self._versions.serving()),
            preparing=self._preparing,
            swap=self._swaps.last,
        )

    async def set_draining(self, draining: bool) -> GuardStatus:
        self._drained = draining
        self._heed()
        engine = self.fake.engine
        return GuardStatus(engine.label, engine.draining, self.fake.stats.in_flight)

    async def prepare(self, version: int) -> BackendStatus:
        try:
            self._preparing = PrepareStatus(self._versions.label(version), 1, 1, ready=True)
        except LookupError as error:
            self._preparing = PrepareStatus(f"v{version}", error=str(error))
        return self.status()

    async def swap(self, order: SwapOrder) -> SwapStatus:
        try:
            label, missing = self._versions.label(order.version), None
        except LookupError as error:
            label, missing = f"v{order.version}", str(error)
        known = self._swaps.take(order, label)
        if known is not None:
            return known
        self.orders.append(order)
        self._released.set()  # whoever was held is superseded
        self._released = asyncio.Event()
        way = Way.IN_PLACE if order.way is Way.AUTO else order.way
        status = replace(self._swaps.find(order.id), way=way)
        self._swaps.note(status)
        if missing is not None:
            self._swaps.note(replace(status, phase=Phase.ENDED, outcome=Outcome.SERVING_OLD, reason=missing))
        else:
            self._tasks.start(f"swap:{order.id}", self._perform(order, status))
        return self._swaps.find(order.id)

    def swap_status(self, swap_id: str) -> SwapStatus:
        return self._swaps.find(swap_id)

    async def release(self, swap_id: str) -> SwapStatus:
        status = self._swaps.find(swap_id)
        if status.outcome is Outcome.SERVING_NEW:
            return status
        held = self._swaps.held(swap_id)
        if self._versions.label(self._versions.serving()) != held.version:
            raise Superseded(f"{self._versions.label(self._versions.serving())} should be served by now")
        self._swapping = False
        self._heed()
        self._swaps.note(replace(held, phase=Phase.ENDED, outcome=Outcome.SERVING_NEW))
        self._released.set()
        return self._swaps.find(swap_id)

    def stop(self) -> None:
        self._state = State.STOPPED
        self.fake.die()

    # -- a swap

    async def _perform(self, order: SwapOrder, status: SwapStatus) -> None:
        """Phase by phase, as the table says, until it ends."""
        life, before = self._life, (self.fake.engine.weights, self.fake.engine.label)
        began, out_since = time.monotonic(), 0.0
        while status.phase is not Phase.ENDED and self._life == life:
            self._swaps.note(status)
            if status.phase is not Phase.PREPARING and not out_since:
                self._swapping, out_since = True, time.monotonic()
                self._heed()
            entered = time.monotonic()
            event, status = await self._phase(status, order, before)
            if self._swaps.find(order.id).phase is Phase.ENDED:
                return  # released, or superseded while it was held
            step = after(status.phase, event, way=status.way, hold=order.hold)
            timings = {**status.timings, status.phase.value: time.monotonic() - entered}
            status = replace(status, phase=step.phase, outcome=step.outcome, timings=timings)
            if time.monotonic() - began > order.deadline_s and step.phase not in (Phase.ENDED, Phase.UNDOING):
                status = replace(status, phase=Phase.UNDOING, reason="the deadline has passed")
        if self._life != life and status.outcome is None:
            status = replace(status, phase=Phase.ENDED, outcome=Outcome.RESTARTING, reason="the engine died")
        self._end(status, out_since, life)

    def _end(self, status: SwapStatus, out_since: float, life: int) -> None:
        out_s = time.monotonic() - out_since if out_since else 0.0
        self._swaps.note(replace(status, out_of_rotation_s=out_s))
        if self._life != life:
            return
        if status.outcome is Outcome.RESTARTING:
            self._die()
        else:
            self._swapping = False
            self._heed()

    async def _phase(
        self, status: SwapStatus, order: SwapOrder, before: tuple[str, str]
    ) -> tuple[Event, SwapStatus]:
        trouble = self._troubles.strike(status.phase, order.version)
        if self._manner.phase_s:
            await asyncio.sleep(self._manner.phase_s)
        match trouble:
            case How.FAILS:
                return Event.FAILED, replace(status, reason=f"{status.phase} failed", report=_report(False))
            case How.HANGS:
                await asyncio.sleep(self._manner.hang_s)
                return Event.LOST, replace(status, reason=f"{status.phase} did not end in time")
            case How.DIES | How.AGENT_DIES:
                self._die(agent=trouble is How.AGENT_DIES)
                return Event.LOST, replace(status, reason=f"the engine died while {status.phase}")
            case How.LIES:
                return Event.DONE, status
        return Event.DONE, await self._do(status, order, before)

    async def _do(self, status: SwapStatus, order: SwapOrder, before: tuple[str, str]) -> SwapStatus:
        engine = self.fake.engine
        match status.phase:
            case Phase.DRAINING:
                return replace(status, aborted=await self._drain(order))
            case Phase.LOADING:
                engine.serve(status.version)
            case Phase.RESTARTING:
                await asyncio.sleep(self._manner.restart_s)
                engine.serve(status.version)
            case Phase.PROBING if order.probe is not ProbeRule.OFF:
                return replace(status, report=_report(True))
            case Phase.UNDOING:
                engine.weights, engine.label = before
            case Phase.HELD:
                await self._released.wait()
        return status

    async def _drain(self, order: SwapOrder) -> int:
        """Wait for what runs, then end it; returns how many were ended."""
        try:
            async with asyncio.timeout(order.wait_s):
                while self.fake.stats.in_flight:  # noqa: ASYNC110 (counted by many connections)
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            running = self.fake.stats.in_flight
            self.fake.cut_running(orderly=order.then is InFlight.ABORT)
            return running
        return 0

    def _die(self, *, agent: bool = False) -> None:
        self._life += 1
        self.gone = agent
        self._state = State.RESTARTING
        self._tasks.start("restart", self._come_back(self._life))

    async def _come_back(self, life: int) -> None:
        await self.fake.kill()
        await asyncio.sleep(self._manner.restart_s)
        if self._life != life or self._state is State.STOPPED:
            return
        if self.gone:
            self._swaps, self._drained, self.gone = Orders(), False, False
        self.fake.engine.serve(self._versions.label(self._versions.serving()))
        await self.fake.start_again()
        self._restarts += 1
        self._swapping = False
        self._heed()

    def _heed(self) -> None:
        """Tell the engine whether it is in rotation."""
        engine = self.fake.engine
        engine.draining = self._drained or self._swapping
        engine.elsewhere = "swapping" if self._swapping else "draining"
        self._state = State.DRAINING if engine.draining else State.READY
        self._since = datetime.now(UTC)

    def _application(self) -> Any:
        api = control_api(self, self.token)

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            if self.gone:
                await Response(status_code=502)(scope, receive, send)
            else:
                await api(scope, receive, send)

        return application

    @property
    def number(self) -> int | None:
        """The version whose weights answer now."""
        return number_of(self.fake.engine.weights)


def _report(passed: bool) -> dict[str, Any]:
    """The part of a parity report that decides."""
    cause = "none" if passed else "other_weights"
    return {"passed": passed, "diagnosis": {"cause": cause, "evidence": "", "names": []}, "breaches": []}
