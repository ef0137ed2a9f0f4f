"""One swap from its order to its end: the table of `backends.agent.swaps`, performed by `steps`.

Every phase is bounded, and ends at once when its engine dies. However it goes, the engine then serves the new
weights, serves the old ones, or is out of rotation and being started on what should be served. Used once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import httpx2
import msgspec

from backends.agent import steps
from backends.agent.proving import Fingerprint
from backends.agent.rotation import Why
from backends.agent.runs import EngineEnded, Run
from backends.agent.states import IllegalTransition
from backends.agent.steps import Failed, Lost, NotProved, Tools, Untouched
from backends.agent.swaps import Event, after
from backends.agent.weights import Weights
from backends.contract import Outcome, Phase, SwapOrder, SwapStatus, Way
from backends.vllm.control import EngineRefused
from checkpoints.errors import CheckpointError

DEATH_S = 1.0
"""An engine whose connections break is given so long to be seen dead."""
LIMITS_S: Mapping[Phase, float] = {
    Phase.LOADING: 300.0,
    Phase.PROBING: 300.0,
    Phase.WARMING: 120.0,
}
"""Of single phases; those of others follow from the order and the settings."""

ENGINE_ERRORS = (EngineRefused, IllegalTransition, httpx2.TransportError)

Note = Callable[[SwapStatus], None]

logger = logging.getLogger(__name__)


class Transaction:
    def __init__(
        self, tools: Tools, order: SwapOrder, status: SwapStatus, note: Note, start_s: float
    ) -> None:
        """`note` hears of each change of the status; `start_s`: limit for an engine's start."""
        self._tools = tools
        self._order = order
        self._status = status
        self._note = note
        self._start_s = start_s
        self._deadline = time.monotonic() + order.deadline_s
        self._run: Run | None = None
        self._old: Weights = tools.keeper.weights
        self._new: Weights = tools.keeper.weights
        self._before: Fingerprint | None = None
        self._touched = False
        """The load has begun."""
        self._out_since: float | None = None
        self._released = asyncio.Event()
        self._superseded = False
        self.ended = asyncio.Event()
        """Set by whoever performs it."""
        self._work: Mapping[Phase, Callable[[], Coroutine[Any, Any, None]]] = {
            Phase.PREPARING: self._prepare,
            Phase.DRAINING: self._drain,
            Phase.LOADING: self._load,
            Phase.RESTARTING: self._restart,
            Phase.PROBING: self._probe,
            Phase.WARMING: self._warm,
            Phase.HELD: self._hold,
            Phase.UNDOING: self._undo,
        }

    @property
    def weights(self) -> tuple[Weights, Weights]:
        """Those before, and those that are to come."""
        return self._old, self._new

    def release(self) -> None:
        """Let a held swap go on."""
        self._released.set()

    def supersede(self) -> None:
        """Another swap goes on from here: end a held one, and leave the engine as it is."""
        self._superseded = True
        self._released.set()

    async def perform(self) -> None:
        """Until the end. Cancelled, it leaves the engine to whoever ends the agent."""
        while self._status.phase is not Phase.ENDED:
            self._note(self._status)
            phase, entered = self._status.phase, time.monotonic()
            event, reason = await self._bounded(phase)
            if self._superseded:
                return
            self._change(timings={**self._status.timings, phase.value: time.monotonic() - entered})
            if reason:
                logger.warning("swap %s to %s: %s: %s", self._order.id, self._status.version, phase, reason)
                self._change(reason="; ".join(filter(None, (self._status.reason, reason))))
            step = after(phase, event, way=self._status.way, hold=self._order.hold)
            if step.outcome is None:
                self._change(phase=step.phase)
            else:
                await self._end(step.outcome)

    # -- bounds

    def _limit(self, phase: Phase) -> float:
        """Seconds; undoing has its own, whatever the deadline."""
        if phase is Phase.UNDOING:
            start = self._start_s if self._status.way is Way.RESTART else LIMITS_S[Phase.LOADING]
            return start + LIMITS_S[Phase.PROBING]
        own = {
            Phase.DRAINING: self._order.wait_s + 3 * steps.END_S,
            Phase.RESTARTING: self._start_s,
            **LIMITS_S,
        }
        return max(0.01, min(own.get(phase, self._order.deadline_s), self._deadline - time.monotonic()))

    async def _bounded(self, phase: Phase) -> tuple[Event, str]:
        """How the phase ended, and why if it did not succeed."""
        try:
            await self._while_alive(phase, self._work[phase]())
        except Untouched as error:
            self._touched = False
            return Event.FAILED, str(error)
        except NotProved as error:
            self._report(error.report)
            return Event.FAILED, str(error)
        except (Failed, EngineRefused, IllegalTransition, CheckpointError) as error:
            return await self._seen_dead(phase, str(error))
        except (Lost, EngineEnded) as error:
            return Event.LOST, str(error)
        except TimeoutError:
            return (Event.LOST if self._touched else Event.FAILED), "it did not end in time"
        except (httpx2.TransportError, OSError, msgspec.DecodeError) as error:
            event, why = await self._seen_dead(phase, f"{type(error).__name__}: {error}")
            return (Event.LOST if self._touched else event), why
        except Exception as error:
            # An error of ours must not leave an engine paused, or with weights that nobody knows.
            logger.exception("swap %s failed in an unforeseen way", self._order.id)
            return (Event.LOST if self._touched else Event.FAILED), f"{type(error).__name__}: {error}"
        return Event.DONE, ""

    async def _seen_dead(self, phase: Phase, why: str) -> tuple[Event, str]:
        """Failed; or lost, if the engine turns out to be dead. One that is starting tells so itself."""
        run = self._run
        if run is None or phase is Phase.RESTARTING:
            return Event.FAILED, why
        try:
            await asyncio.wait_for(run.gone.wait(), DEATH_S if self._touched else 0.1)
        except TimeoutError:
            return Event.FAILED, why
        return Event.LOST, f"{why}; the engine ended: {run.reason}"

    async def _while_alive(self, phase: Phase, work: Coroutine[Any, Any, None]) -> None:
        """The phase's work, within its limit and not beyond the engine's end. Raises as it does, or Lost."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=f"swap:{self._order.id}:{phase}")
        restarts = phase is Phase.RESTARTING or (phase is Phase.UNDOING and self._status.way is Way.RESTART)
        waits: set[asyncio.Task[Any]] = {task}
        if self._run is not None and not restarts:
            waits.add(loop.create_task(self._run.gone.wait(), name=f"swap:{self._order.id}:gone"))
        try:
            await asyncio.wait(waits, timeout=self._limit(phase), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = {wait for wait in waits if wait.done()}
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if task in ended:
            task.result()
        elif ended and self._run is not None:
            raise Lost(f"the engine ended: {self._run.reason}")
        else:
            raise TimeoutError

    # -- phases

    async def _prepare(self) -> None:
        tools = self._tools
        self._run = tools.keeper.proved()
        self._old = self._new = tools.keeper.weights
        self._new, choice = await steps.plan(tools, self._order, self._old)
        self._change(version=self._new.label, way=choice.way, reason=choice.why)
        if choice.way is Way.IN_PLACE:
            self._before = await asyncio.to_thread(tools.questioner.fingerprint, self._old)
            await asyncio.to_thread(tools.questioner.fill_cache, self._new)

    async def _drain(self) -> None:
        self._out_since = time.monotonic()
        self._change(aborted=await steps.drain(self._tools, self._order))

    async def _load(self) -> None:
        if self._status.way is Way.ADAPTER:
            run = self._need_run()
            async with self._tools.keeper.control() as control:
                await steps.load_adapter(control, run, self._new.adapter_name, self._new.adapter)
            return
        self._touched = True
        timings = await steps.load_in_place(self._tools, self._new, self._limit(Phase.LOADING))
        self._change(timings={**self._status.timings, "reload": timings.load})

    async def _restart(self) -> None:
        self._touched = True
        self._run = await steps.relaunch(self._tools, self._new)

    async def _probe(self) -> None:
        report = await steps.prove(self._tools, self._order, self._new, self._old, self._before)
        self._report(report)

    async def _warm(self) -> None:
        await steps.warm_up(self._tools, self._new, self._order.warm_up)
        if self._status.way is Way.RESTART:
            # The first log-probabilities of an engine are slow; clients are not to wait for them.
            await asyncio.to_thread(self._tools.questioner.fingerprint, self._new)
            await self._tools.keeper.enter(Why.UNPROVED)  # not into rotation yet: the swap still runs

    async def _hold(self) -> None:
        """Until it is released; at the deadline what should be served decides."""
        if self._status.way is Way.ADAPTER:
            self._out_since = time.monotonic()
            await self._tools.keeper.leave(Why.SWAP)
            await self._switch(self._new)
        try:
            async with asyncio.timeout(max(0.01, self._deadline - time.monotonic() - 0.1)):
                await self._released.wait()
        except TimeoutError:
            if await asyncio.to_thread(self._tools.wanted) != self._new.number:
                raise Failed("it was not released in time, and something else should be served") from None

    async def _undo(self) -> None:
        """Back to the weights from before, and prove that they are back."""
        tools, old = self._tools, self._old
        if self._status.way is Way.RESTART:
            self._run = await steps.relaunch(tools, old)
            await steps.prove_old(tools, old, None)
        elif self._status.way is Way.ADAPTER:
            await self._switch(old)
            async with tools.keeper.control() as control:
                await steps.unload_adapters(control, self._need_run(), {old.adapter_name})
        elif self._touched:
            await steps.load_in_place(tools, old, LIMITS_S[Phase.LOADING])
            await steps.prove_old(tools, old, self._before)

    # -- the end

    async def _end(self, outcome: Outcome) -> None:
        """Into rotation, or away with the engine; then the swap has ended."""
        try:
            if outcome is Outcome.SERVING_NEW:
                await self._serve_new()
            elif outcome is Outcome.SERVING_OLD:
                await self._serve_old()
        except (*ENGINE_ERRORS, Lost, EngineEnded, CheckpointError) as error:
            outcome = Outcome.RESTARTING
            self._change(reason=f"{self._status.reason}; it did not enter rotation: {error}".strip("; "))
        if outcome is Outcome.RESTARTING:
            self._tools.keeper.forget(Why.SWAP)
            if self._run is not None:
                why = f"swap to {self._status.version}: {self._status.reason}"
                self._tools.keeper.abandon(self._run, why)
        out_s = 0.0 if self._out_since is None else time.monotonic() - self._out_since
        self._change(phase=Phase.ENDED, outcome=outcome, out_of_rotation_s=out_s)
        self._note(self._status)

    async def _serve_new(self) -> None:
        run = self._need_run()
        if self._status.way is Way.ADAPTER:
            if not self._order.hold:
                await self._switch(self._new)
            async with self._tools.keeper.control() as control:
                await steps.unload_adapters(control, run, {self._new.adapter_name, self._old.adapter_name})
        await self._tools.keeper.enter(Why.SWAP, Why.UNPROVED)

    async def _serve_old(self) -> None:
        """What a superseded swap has left out of rotation has to be wanted, before it serves."""
        keeper = self._tools.keeper
        if not keeper.is_outside(Why.SWAP):
            return
        if self._out_since is None and await asyncio.to_thread(self._tools.wanted) != keeper.weights.number:
            raise EngineEnded("what it holds should not be served")
        await keeper.enter(Why.SWAP, Why.UNPROVED)

    async def _switch(self, weights: Weights) -> None:
        async with self._tools.keeper.control() as control:
            await steps.label(control, self._tools.model, weights)
        self._tools.keeper.serves(weights)

    def _need_run(self) -> Run:
        if self._run is None or self._run.gone.is_set():
            raise Lost("the engine is gone")
        return self._run

    def _report(self, report: object) -> None:
        if report is not None:
            self._change(report=msgspec.to_builtins(report))

    def _change(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
