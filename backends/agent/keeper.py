"""Keeps one engine running: the loop around its runs, and whether it is in rotation.

The state changes in one place (`_advance`), by the table of `backends.agent.states`. One task runs `run`;
the other methods are called from the same event loop. What an engine is launched with is asked anew at each
launch (`Launches`), unless a swap has ordered it (`relaunch`); an engine that has to show first that it
computes what it should is launched out of rotation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Set
from datetime import UTC, datetime
from random import Random

import httpx2

from backends.agent.assignment import Assignment
from backends.agent.backoff import History, delay_s, gives_up
from backends.agent.rotation import Why, guard_state, reason
from backends.agent.runs import EngineEnded, Launches, NotServable, Run
from backends.agent.states import Event, IllegalTransition, advance
from backends.agent.weights import Weights
from backends.contract import BackendStatus, GuardStatus, State
from backends.vllm.control import EngineControl, EngineRefused
from backends.vllm.log import EngineLog
from backends.vllm.process import EngineProcess

POLL_STARTING_S = 0.25
POLL_READY_S = 2.0
POLL_ENDING_S = 0.05
PROVE_S = 600.0
"""For an engine that was started to show that it computes what it should."""
UNRESPONSIVE_S = 60.0
"""An engine that was ready and has not answered /health for so long hangs: it is killed and started again."""

logger = logging.getLogger(__name__)


class EngineFailed(RuntimeError):
    """The engine cannot be kept running; the message says why."""


class Keeper:
    def __init__(self, assignment: Assignment, launches: Launches, random: Random) -> None:
        self._assignment = assignment
        self._launches = launches
        self._random = random
        self._log = EngineLog(assignment.log)
        self._state = State.STARTING
        self._since = datetime.now(UTC)
        self._run: Run | None = None
        self._weights = assignment.base
        self._ordered: Weights | None = None
        self._launched = asyncio.Event()
        """Set at each launch."""
        self._ready_at: float | None = None
        self._restarts = 0
        self._last_error: str | None = None
        self._outside: frozenset[Why] = frozenset()
        self._turn = asyncio.Lock()
        """One change of the rotation at a time."""
        self._stop = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Keeper {self._assignment.name} {self._state} {reason(self._outside)}>"

    # -- what others see

    @property
    def weights(self) -> Weights:
        """What the engine has, or was launched with."""
        return self._weights

    def proved(self) -> Run:
        """The run that answers now and may serve, or could if nobody kept it out. Raises EngineEnded."""
        run = self._run
        if run is None or not run.up.is_set() or run.gone.is_set() or Why.UNPROVED in self._outside:
            raise EngineEnded(f"the engine is {self._state}: {self._last_error or 'it was not proved yet'}")
        return run

    def status(self) -> BackendStatus:
        run = self._run
        return BackendStatus(
            name=self._assignment.name,
            state=self._state,
            model=self._assignment.model,
            version=self._weights.label,
            since=self._since.isoformat(timespec="milliseconds"),
            detail=self._log.phase if self._state is State.STARTING else reason(self._outside),
            pid=run.process.engine_pid if run else None,
            restarts=self._restarts,
            last_error=self._last_error,
        )

    def control(self) -> EngineControl:
        return EngineControl(self._assignment.listen, self._assignment.token)

    # -- rotation

    async def set_draining(self, draining: bool) -> GuardStatus:
        """Refuse new requests, or take them again; holds across a restart.

        Raises IllegalTransition, and EngineRefused or httpx2.TransportError if the engine does not say yes.
        """
        return await (self.leave(Why.ASKED) if draining else self.enter(Why.ASKED))

    async def leave(self, why: Why) -> GuardStatus:
        """Take the engine out of rotation, for one reason more. Raises as `set_draining`."""
        async with self._turn:
            return await self._rotate(self._outside | {why})

    async def enter(self, *why: Why) -> GuardStatus:
        """These reasons hold no longer; without any the engine serves. Raises as `set_draining`."""
        async with self._turn:
            return await self._rotate(self._outside - set(why))

    def forget(self, why: Why) -> None:
        """The reason will not hold for the engine that is launched next; this one is gone, or going."""
        self._outside -= {why}

    def is_outside(self, why: Why) -> bool:
        return why in self._outside

    async def _rotate(self, outside: Set[Why]) -> GuardStatus:
        if self._state not in (State.READY, State.DRAINING):
            raise IllegalTransition(f"a backend that is {self._state} neither leaves nor enters rotation")
        run = self._run
        async with self.control() as control:
            status = await control.set_guard(guard_state(outside))
        if run is None or run.gone.is_set():
            raise IllegalTransition("the engine ended meanwhile")
        if bool(outside) is not bool(self._outside):
            self._advance(Event.DRAIN if outside else Event.UNDRAIN)
        self._outside = frozenset(outside)
        return status

    # -- weights

    def serves(self, weights: Weights) -> None:
        """The engine has these weights from now on."""
        self._weights = weights

    async def relaunch(self, weights: Weights) -> Run:
        """End the engine, launch it with these weights, out of rotation; return when it answers.

        The caller then proves it. Raises EngineEnded if it ends before that. Not bounded by itself.
        """
        before, self._ordered = self._run, weights
        while (run := self._run) is None or run is before or not run.ordered or run.weights is not weights:
            self._launched.clear()
            if run is not None:
                run.process.kill()
            await self._launched.wait()
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(event.wait(), name=f"{self._assignment.name}:relaunch")
                for event in (run.up, run.gone)
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        if run.gone.is_set():
            raise EngineEnded(run.reason)
        return run

    def give_up_on(self, run: Run, why: str) -> None:
        """Kill this run, if it has not ended: it hangs, or nobody knows what it computes."""
        if not run.gone.is_set():
            run.why = why
            logger.error("%s: killing the engine: %s", self._assignment.name, why)
            run.process.kill()

    def abandon(self, run: Run, why: str) -> None:
        """A swap ends without knowing what its engine has: kill that run, or the one that it had ordered."""
        self._ordered = None
        current = self._run
        if current is not None and (current is run or current.ordered):
            self.give_up_on(current, why)

    # -- the loop

    async def run(self) -> None:
        """Keep the engine running until `stop`. Raises EngineFailed when it cannot be.

        Cancelling kills the engine at once.
        """
        history = History()
        try:
            while True:
                history, pause_s = await self._live(history)
                if self._stop.is_set() or await self._stopped_within(pause_s):
                    self._advance(Event.STOP)
                    return
                self._restarts += 1
                self._advance(Event.LAUNCH)
        finally:
            self._log.close()

    def stop(self) -> None:
        """Let the engine finish what runs, within its limit, and end `run`. A second call kills it."""
        if self._stop.is_set() and self._run is not None:
            self._run.process.kill()
        self._stop.set()

    async def _live(self, history: History) -> tuple[History, float]:
        """One launch and its run; returns what happened so far, and the pause before the next one."""
        found = await self._next()
        if isinstance(found, NotServable):
            self._last_error = str(found)
            logger.error("%s: nothing can be launched: %s", self._assignment.name, found)
            history = History(history.deaths + 1, history.was_ready)
            self._advance(Event.DIED)
            return history, delay_s(history, self._random)
        weights, ordered = found
        run = await self._one_run(weights, ordered)
        if self._stop.is_set():
            return history, 0.0
        if self._ordered is not None:
            self._advance(Event.DIED)
            return history, 0.0
        history = history.after_death(self._ready_for_s())
        self._last_error = run.reason
        logger.error("%s: the engine ended: %s", self._assignment.name, run.reason)
        if gives_up(history, permanent=run.end is not None and run.end.permanent):
            self._advance(Event.GAVE_UP)
            raise EngineFailed(run.reason)
        self._advance(Event.DIED)
        return history, delay_s(history, self._random)

    async def _next(self) -> tuple[Weights, bool] | NotServable:
        """What to launch, and whether a swap has ordered it; or why nothing can be."""
        if self._ordered is None:
            try:
                weights = await self._launches.next()
            except NotServable as error:
                return error
            if self._ordered is None:  # no swap has ordered anything meanwhile
                return weights, False
        weights, self._ordered = self._ordered, None
        return weights, True

    async def _one_run(self, weights: Weights, ordered: bool) -> Run:
        """From the engine's start to its end."""
        assignment = self._assignment
        self._ready_at = None
        self._weights = weights
        if self._launches.proves:
            self._outside |= {Why.UNPROVED}
        process = await EngineProcess.start(
            assignment.recipe.command(weights, reason(self._outside)),
            assignment.listen,
            self._log,
            scratch=assignment.scratch,
            shutdown_s=assignment.shutdown_timeout_s,
        )
        run = self._run = Run(weights, process, ordered)
        self._launched.set()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(work, name=f"{assignment.name}:{name}")
                    for name, work in (
                        ("watch", self._watch(run)),
                        ("prove", self._prove(run)),
                        ("end", self._end_when_stopped(run)),
                    )
                ]
                run.end = await process.wait()
                for task in tasks:
                    task.cancel()
            return run
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        finally:
            self._run = None
            run.gone.set()

    async def _watch(self, run: Run) -> None:
        """Find out when the engine is ready, and whether it hangs; a hanging one is killed."""
        async with self.control() as control:
            if not await self._became_ready(run, control):
                self.give_up_on(run, f"not ready within {self._assignment.start_timeout_s:g} s")
                return
            last_well = time.monotonic()
            while time.monotonic() - last_well < UNRESPONSIVE_S:
                await asyncio.sleep(POLL_READY_S)
                if await control.is_well():
                    last_well = time.monotonic()
            self.give_up_on(run, f"no answer for {UNRESPONSIVE_S:g} s")

    async def _became_ready(self, run: Run, control: EngineControl) -> bool:
        began = time.monotonic()
        while not await control.is_well():
            if time.monotonic() - began > self._assignment.start_timeout_s:
                return False
            await asyncio.sleep(POLL_STARTING_S)
        if self._stop.is_set():
            return True
        self._ready_at = time.monotonic()
        self._advance(Event.HEALTHY)
        if self._outside:
            self._advance(Event.DRAIN)
        run.up.set()
        return True

    async def _prove(self, run: Run) -> None:
        """Let an engine that was launched out of rotation enter it, if it is what should serve."""
        if run.ordered or not self._launches.proves:
            return
        await run.up.wait()
        try:
            async with asyncio.timeout(PROVE_S):
                await self._launches.prove(run)
            await self.enter(Why.UNPROVED)
        except TimeoutError:
            self.give_up_on(run, f"not proved within {PROVE_S:g} s")
        except (NotServable, EngineRefused, IllegalTransition, httpx2.TransportError) as error:
            self.give_up_on(run, f"not proved: {error}")

    async def _end_when_stopped(self, run: Run) -> None:
        """Once stopped: nothing new, what runs to its end within the limit, then kill.

        An engine keeps nothing that needs saving, and taking itself apart in order costs it ten seconds.
        """
        await self._stop.wait()
        try:
            async with asyncio.timeout(self._assignment.shutdown_timeout_s), self.control() as control:
                while (await control.set_draining(True)).in_flight:  # noqa: ASYNC110 (in another process)
                    await asyncio.sleep(POLL_ENDING_S)
        except (TimeoutError, EngineRefused, httpx2.TransportError):
            pass  # it is killed all the same
        run.process.kill()

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _ready_for_s(self) -> float | None:
        return None if self._ready_at is None else time.monotonic() - self._ready_at

    def _advance(self, event: Event) -> None:
        before, self._state = self._state, advance(self._state, event)
        self._since = datetime.now(UTC)
        logger.info("%s: %s -> %s (%s)", self._assignment.name, before, self._state, event)
