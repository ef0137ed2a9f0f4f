"""Changes the weights of a running engine where they lie: the bare steps, each bounded and checked.

Pause, load, forget every cache, label, resume. It neither drains nor proves anything, and does not know
whether this engine may be reloaded in place at all (`backends.qualify` does): the agent's transaction stands
around it. Once loading has begun, only success leaves an engine that may serve: on any error it stays paused
and must be restarted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx2
import msgspec

from backends.vllm.control import EngineControl, EngineRefused

PAUSE_WAIT_S = 5.0
"""For what still runs to end by itself. Whoever wants more has drained the engine before."""
RESET_TRIES = 5
RESET_PAUSE_S = 0.2
"""Between tries: a request that was aborted gives its blocks back one step later."""
SHORT_S = 10.0
"""For steps that compute nothing."""


class Step(StrEnum):
    """What a reload consists of, in order."""

    PAUSE = "pause"
    LOAD = "load"
    RESET = "reset"
    LABEL = "label"
    RESUME = "resume"


class ReloadFailed(RuntimeError):
    """A step failed.

    `weights_known`: the engine surely still has the weights from before, all of them, and was told to go on.
    If not, it is paused or dead, with weights, caches or label that nobody knows: restart it.
    """

    def __init__(self, step: Step, weights_known: bool, why: str) -> None:
        state = "the old weights serve on" if weights_known else "its weights are not known, restart it"
        super().__init__(f"{step}: {why} ({state})")
        self.step = step
        self.weights_known = weights_known
        self.why = why


@dataclass(frozen=True, slots=True)
class ReloadTimings:
    """Seconds that each step took."""

    pause: float = 0.0
    load: float = 0.0
    reset: float = 0.0
    label: float = 0.0
    resume: float = 0.0

    @property
    def total(self) -> float:
        return self.pause + self.load + self.reset + self.label + self.resume


async def reload_in_place(
    control: EngineControl,
    folder: Path,
    *,
    label: str,
    timeout_s: float,
    wait_s: float = PAUSE_WAIT_S,
) -> ReloadTimings:
    """Load the checkpoint in `folder` into the engine and label it; within `timeout_s` in all.

    `folder` must be whole and fit the engine: vLLM ends after a reload that fails, and keeps old or
    uninitialised values for tensors that are missing. Requests that run longer than `wait_s` are aborted.
    Raises ReloadFailed. Cancelled, it leaves the engine paused, and after loading began with unknown weights.
    """
    deadline = time.monotonic() + timeout_s
    seconds: dict[Step, float] = {}
    try:
        async with _step(Step.PAUSE, seconds, _left(deadline)):
            if not await asyncio.to_thread((folder / "config.json").is_file):
                raise EngineRefused(f"{folder} holds no checkpoint")  # vLLM would find that out and end
            await _pause(control, min(wait_s, _left(deadline)), deadline)
    except ReloadFailed:
        with suppress(EngineRefused, httpx2.TransportError):
            await control.resume(limit_s=SHORT_S)
        raise
    try:
        async with _step(Step.LOAD, seconds, _left(deadline)):
            await control.load_weights(folder, limit_s=_left(deadline))
        async with _step(Step.RESET, seconds, _left(deadline)):
            await _reset(control, deadline)
        async with _step(Step.LABEL, seconds, _left(deadline)):
            await control.label_weights(label, limit_s=min(SHORT_S, _left(deadline)))
        async with _step(Step.RESUME, seconds, _left(deadline)):
            await control.resume(limit_s=min(SHORT_S, _left(deadline)))
    except ReloadFailed as failed:
        if failed.weights_known:
            with suppress(EngineRefused, httpx2.TransportError):
                await control.resume(limit_s=SHORT_S)
        raise
    return ReloadTimings(**{step.value: took for step, took in seconds.items()})


async def _pause(control: EngineControl, wait_s: float, deadline: float) -> None:
    """Let what runs end within `wait_s`, then abort it."""
    try:
        async with asyncio.timeout(wait_s):
            await control.pause("wait", limit_s=_left(deadline))
    except TimeoutError:
        await control.pause("abort", limit_s=min(SHORT_S, _left(deadline)))


async def _reset(control: EngineControl, deadline: float) -> None:
    """Forget what was computed with other weights; 200 alone is no proof that it was."""
    for attempt in range(RESET_TRIES):
        if attempt:
            await asyncio.sleep(RESET_PAUSE_S)
        if await control.reset_prefix_cache(limit_s=min(SHORT_S, _left(deadline))):
            break
    else:
        raise EngineRefused(f"the prefix cache could not be emptied in {RESET_TRIES} tries")
    await control.reset_other_caches(limit_s=min(SHORT_S, _left(deadline)))


@asynccontextmanager
async def _step(step: Step, seconds: dict[Step, float], limit_s: float) -> AsyncIterator[None]:
    """Times one step, bounds it, and translates what goes wrong in it."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            yield
    except (EngineRefused, httpx2.TransportError, msgspec.DecodeError, TimeoutError) as error:
        why = str(error) or f"no answer within {time.monotonic() - began:.1f} s"
        raise ReloadFailed(step, _untouched(step, error), why) from error
    seconds[step] = time.monotonic() - began


def _untouched(step: Step, error: Exception) -> bool:
    """Whether the weights are surely the old ones: nothing was loaded, or there is no path to load by."""
    return step is Step.PAUSE or (
        step is Step.LOAD and isinstance(error, EngineRefused) and error.status == 404
    )


def _left(deadline: float) -> float:
    """Seconds until the deadline; a last moment where it has passed, so that a step fails by itself."""
    return max(0.01, deadline - time.monotonic())
