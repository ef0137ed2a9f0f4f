"""Starts a gateway and the backends of this machine as children, watches them, and takes all down in order.

Until everything was ready once, a child that ends is a failure of the whole; after that it is started
again. Ending: the gateway first, which answers what it has accepted, then the engines. Nothing survives
this process, however it ends: every child is on a leash.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2

from backends.agent.client import AgentClient, AgentUnreachable
from backends.contract import BackendStatus, State
from backends.layout import Place
from backends.settings import EngineSettings
from backends.vllm.process import KILL_GRACE_S
from gateway.cli.serve_child import Child
from gateway.cli.serve_screen import Row, Screen, ready_text

POLL_S = 0.3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
END_GRACE_S = 10.0
"""Over the limits that a child has for ending by itself."""
GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run, and how to ask it."""

    url: str
    """Of the gateway, from this machine."""
    model: str
    """Models for people to read."""
    token: str
    arguments: tuple[str, ...]
    """For every child: the configuration."""
    environment: Mapping[str, str]
    backends: tuple[tuple[Place, EngineSettings], ...]
    gateway_grace_s: float
    starting_at_once: int
    """Engines that start at a time; more would only take each other's processor."""


@dataclass(slots=True)
class _Entry:
    """One child's part of the screen."""

    what: str
    started: float | None = None
    ready_after: float | None = None
    status: BackendStatus | None = None
    child: Child | None = None


@dataclass(slots=True)
class Serving:
    """One run of `changeover serve`."""

    plan: Plan
    screen: Screen
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _ready: bool = False
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _failure: str | None = None
    _gate: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._gate = asyncio.Semaphore(self.plan.starting_at_once)
        self._entries[GATEWAY] = _Entry(self.plan.url)
        for place, _ in self.plan.backends:
            self._entries[place.name] = _Entry(place.model)

    async def run(self) -> str | None:
        """Until a signal or a failure to start; everything is down when it returns. Returns the failure."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            gateway = group.create_task(self._keep_gateway(), name=GATEWAY)
            for index, (place, engine) in enumerate(self.plan.backends):
                group.create_task(self._keep_backend(index, place, engine), name=place.name)
            watch = group.create_task(self._watch(began), name="watch")
            await self._ending.wait()
            watch.cancel()
            self.screen.close()
            self.screen.line("ending: the gateway first, then the engines (Ctrl-C again: at once)")
            self._terminate(GATEWAY)
            await gateway
            for place, _ in self.plan.backends:
                self._terminate(place.name)
        return self._failure

    async def _keep_gateway(self) -> None:
        argv = (sys.executable, "-m", "gateway", "gateway", *self.plan.arguments)
        await self._keep(GATEWAY, argv, self.plan.gateway_grace_s)

    async def _keep_backend(self, index: int, place: Place, engine: EngineSettings) -> None:
        argv = (sys.executable, "-m", "gateway", "backend", *self.plan.arguments, "--index", str(index))
        grace = engine.shutdown_timeout_s + KILL_GRACE_S + END_GRACE_S
        async with asyncio.TaskGroup() as group, self._gate:
            group.create_task(self._keep(place.name, (*argv, "--quiet"), grace), name=f"{place.name}:keep")
            await self._started(place.name)

    async def _keep(self, name: str, argv: tuple[str, ...], grace_s: float) -> None:
        """Run the child; again if it ends after everything was ready once."""
        entry = self._entries[name]
        pause = FIRST_PAUSE_S
        while not self._ending.is_set():
            entry.started, entry.ready_after = time.monotonic(), None
            entry.child = await Child.start(
                argv, self.plan.environment, grace_s=grace_s, echo=self.screen.line
            )
            code = await entry.child.wait()
            entry.child = None
            if self._ending.is_set():
                return
            if not self._ready:
                self._fail(f"{name} could not start (exit code {code})")
                return
            self.screen.line(f"{name} ended (exit code {code}); starting it again in {pause:g} s")
            await self._ending_within(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _watch(self, began: float) -> None:
        """Show how the start goes until everything is ready."""
        async with httpx2.AsyncClient(trust_env=False, timeout=2.0) as client:
            while not all([await self._look(name, client) for name in self._entries]):
                self.screen.show(self._rows())
                await asyncio.sleep(POLL_S)
        self.screen.show(self._rows())
        self.screen.close()
        self._ready = True
        self.screen.line(ready_text(self.plan.url, self.plan.model, time.monotonic() - began))

    async def _look(self, name: str, client: httpx2.AsyncClient) -> bool:
        """Whether a child is ready; notes what it is at."""
        entry = self._entries[name]
        if entry.child is None or entry.started is None:
            return False
        ready = await (self._gateway_ready(client) if name == GATEWAY else self._backend_ready(name, entry))
        if ready and entry.ready_after is None:
            entry.ready_after = time.monotonic() - entry.started
        return ready

    async def _gateway_ready(self, client: httpx2.AsyncClient) -> bool:
        try:
            return (await client.get(f"{self.plan.url}/readyz")).status_code == 200
        except httpx2.TransportError:
            return False

    async def _backend_ready(self, name: str, entry: _Entry) -> bool:
        place = next(place for place, _ in self.plan.backends if place.name == name)
        try:
            async with AgentClient(place.control_socket, self.plan.token) as agent:
                entry.status = await agent.status()
        except AgentUnreachable:
            return False
        return entry.status.state is State.READY

    async def _started(self, name: str) -> None:
        """Until this backend is ready or everything ends."""
        while self._entries[name].ready_after is None and not self._ending.is_set():
            await self._ending_within(POLL_S)

    def _rows(self) -> list[Row]:
        now = time.monotonic()
        return [_row(name, entry, now) for name, entry in self._entries.items()]

    async def _ending_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return

    def _on_signal(self) -> None:
        if self._ending.is_set():
            for entry in self._entries.values():
                if entry.child is not None:
                    entry.child.kill()
        self._ending.set()

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self._ending.set()

    def _terminate(self, name: str) -> None:
        child = self._entries[name].child
        if child is not None:
            child.terminate()


def _row(name: str, entry: _Entry, now: float) -> Row:
    if entry.started is None:
        return Row(name, entry.what, "waiting", "for its turn to start", 0.0)
    if entry.ready_after is not None:
        return Row(name, entry.what, "ready", "", entry.ready_after)
    status = entry.status
    state = status.state if status else State.STARTING
    detail = (status.detail or status.last_error or "") if status else ""
    if name == GATEWAY:
        detail = "waiting for engines"
    return Row(name, entry.what, state, detail.partition("\n")[0], now - entry.started)
