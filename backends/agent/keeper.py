"""Keeps one engine running: the loop around its runs, and what the control API may ask for.

The state changes in one place (`_advance`), by the table of `backends.agent.states`. One task runs
`run`; the other methods are called from the same event loop, and none of them waits for an engine to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import httpx2

from backends.agent.backoff import History, delay_s, gives_up
from backends.agent.states import Event, advance
from backends.contract import BackendStatus, GuardStatus, State
from backends.vllm.command import Command, Listen
from backends.vllm.control import EngineControl, EngineRefused
from backends.vllm.log import EngineLog
from backends.vllm.process import EngineProcess
from backends.vllm.reasons import EngineExit

POLL_STARTING_S = 0.25
POLL_READY_S = 2.0
POLL_ENDING_S = 0.05
UNRESPONSIVE_S = 60.0
"""An engine that was ready and has not answered /health for so long hangs: it is killed and started again."""

logger = logging.getLogger(__name__)


class EngineFailed(RuntimeError):
    """The engine cannot be kept running; the message says why."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one keeper keeps."""

    name: str
    model: str
    """As clients call it."""
    version: str
    command: Command
    listen: Listen
    token: str
    log: Path
    scratch: Path
    start_timeout_s: float
    shutdown_timeout_s: float


class Keeper:
    def __init__(self, assignment: Assignment, random: Random) -> None:
        self._assignment = assignment
        self._random = random
        self._log = EngineLog(assignment.log)
        self._state = State.STARTING
        self._since = datetime.now(UTC)
        self._process: EngineProcess | None = None
        self._ready_at: float | None = None
        self._restarts = 0
        self._last_error: str | None = None
        self._draining = False
        self._stop = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Keeper {self._assignment.name} {self._state}>"

    async def run(self) -> None:
        """Keep the engine running until `stop`. Raises EngineFailed when it cannot be.

        Cancelling kills the engine at once.
        """
        history = History()
        try:
            while True:
                end = await self._one_run()
                if self._stop.is_set():
                    self._advance(Event.STOP)
                    return
                history = history.after_death(self._ready_for_s())
                self._last_error = end.reason
                logger.error("%s: the engine ended: %s", self._assignment.name, end.reason)
                if gives_up(history, permanent=end.permanent):
                    self._advance(Event.GAVE_UP)
                    raise EngineFailed(end.reason)
                self._advance(Event.DIED)
                if await self._stopped_within(delay_s(history, self._random)):
                    self._advance(Event.STOP)
                    return
                self._restarts += 1
                self._advance(Event.LAUNCH)
        finally:
            self._log.close()

    def status(self) -> BackendStatus:
        process = self._process
        return BackendStatus(
            name=self._assignment.name,
            state=self._state,
            model=self._assignment.model,
            version=self._assignment.version,
            since=self._since.isoformat(timespec="milliseconds"),
            detail=self._log.phase if self._state is State.STARTING else "",
            pid=process.engine_pid if process else None,
            restarts=self._restarts,
            last_error=self._last_error,
        )

    async def set_draining(self, draining: bool) -> GuardStatus:
        """Refuse new requests, or take them again; holds across a restart.

        Raises IllegalTransition, and EngineRefused or httpx2.TransportError if the engine does not say yes.
        """
        event = Event.DRAIN if draining else Event.UNDRAIN
        if draining is not self._draining:
            advance(self._state, event)
        async with self._control() as control:
            status = await control.set_draining(draining)
        if draining is not self._draining:
            self._draining = draining
            self._advance(event)
        return status

    def stop(self) -> None:
        """Let the engine finish what runs, within its limit, and end `run`. A second call kills it."""
        if self._stop.is_set() and self._process is not None:
            self._process.kill()
        self._stop.set()

    async def _one_run(self) -> EngineExit:
        """From the engine's start to its end."""
        assignment = self._assignment
        self._ready_at = None
        process = await EngineProcess.start(
            assignment.command,
            assignment.listen,
            self._log,
            scratch=assignment.scratch,
            shutdown_s=assignment.shutdown_timeout_s,
        )
        self._process = process
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(process), name=f"{assignment.name}:watch")
                ending = group.create_task(self._end_when_stopped(process), name=f"{assignment.name}:end")
                end = await process.wait()
                watch.cancel()
                ending.cancel()
            return end
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        finally:
            self._process = None

    async def _watch(self, process: EngineProcess) -> None:
        """Find out when the engine is ready, and whether it hangs; a hanging one is killed."""
        async with self._control() as control:
            if not await self._became_ready(control):
                self._give_up_on(process, f"not ready within {self._assignment.start_timeout_s:g} s")
                return
            last_well = time.monotonic()
            while time.monotonic() - last_well < UNRESPONSIVE_S:
                await asyncio.sleep(POLL_READY_S)
                if await control.is_well():
                    last_well = time.monotonic()
            self._give_up_on(process, f"no answer for {UNRESPONSIVE_S:g} s")

    async def _became_ready(self, control: EngineControl) -> bool:
        began = time.monotonic()
        while not await control.is_well():
            if time.monotonic() - began > self._assignment.start_timeout_s:
                return False
            await asyncio.sleep(POLL_STARTING_S)
        if self._stop.is_set():
            return True
        self._ready_at = time.monotonic()
        self._advance(Event.HEALTHY)
        if self._draining:
            # Whoever asked for it before the restart still counts on it.
            with contextlib.suppress(EngineRefused, httpx2.TransportError):
                await control.set_draining(True)
            self._advance(Event.DRAIN)
        return True

    async def _end_when_stopped(self, process: EngineProcess) -> None:
        """Once stopped: nothing new, what runs to its end within the limit, then kill.

        An engine keeps nothing that needs saving, and taking itself apart in order costs it ten seconds.
        """
        await self._stop.wait()
        try:
            async with asyncio.timeout(self._assignment.shutdown_timeout_s), self._control() as control:
                while (await control.set_draining(True)).in_flight:  # noqa: ASYNC110 (in another process)
                    await asyncio.sleep(POLL_ENDING_S)
        except (TimeoutError, EngineRefused, httpx2.TransportError):
            pass  # it is killed all the same
        process.kill()

    def _give_up_on(self, process: EngineProcess, why: str) -> None:
        logger.error("%s: killing the engine: %s", self._assignment.name, why)
        process.kill()

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _ready_for_s(self) -> float | None:
        return None if self._ready_at is None else time.monotonic() - self._ready_at

    def _control(self) -> EngineControl:
        return EngineControl(self._assignment.listen, self._assignment.token)

    def _advance(self, event: Event) -> None:
        before, self._state = self._state, advance(self._state, event)
        self._since = datetime.now(UTC)
        logger.info("%s: %s -> %s (%s)", self._assignment.name, before, self._state, event)
