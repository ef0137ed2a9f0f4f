"""What the phases of a swap do to an engine. Each comes to its end or raises; none decides what follows.

`Failed`: the engine said no, and will do nothing more of what it was told. `Lost`: it is gone, or it is not
known what it did and may still do. The order of phases is `backends.agent.swaps`', their limits and their
consequences are `backends.agent.transaction`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from backends.agent.checking import change_between, same_tensors
from backends.agent.keeper import Keeper
from backends.agent.proving import Fingerprint, Questioner, same, summary
from backends.agent.rotation import Why
from backends.agent.runs import Run
from backends.agent.ways import Choice, Refused, choose
from backends.agent.weights import Weights
from backends.contract import InFlight, ProbeRule, SwapOrder
from backends.versions import BASE
from backends.vllm.control import EngineControl, EngineRefused
from backends.vllm.reload import ReloadFailed, ReloadTimings, reload_in_place
from checkpoints.errors import CheckpointError
from checkpoints.probe.judge import Report
from checkpoints.probe.parity import limits_for
from checkpoints.verdict import Swap

POLL_S = 0.02
END_S = 5.0
"""For requests that were told to end."""
SHORT_S = 30.0
"""For steps that compute next to nothing: an adapter, one short answer."""
WARM_TOKENS = 8
WARM_IDS = list(range(3, 35))
DEFAULT_DTYPES = ("float32", "bfloat16")


class Failed(RuntimeError):
    """The phase failed, and the engine does nothing more of it."""


class Lost(RuntimeError):
    """The engine is gone, or nobody knows what it does."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a swap works with."""

    keeper: Keeper
    questioner: Questioner
    fetch: Callable[[int], Awaitable[Weights]]
    """A version on this machine, verified. Raises CheckpointError, OSError."""
    wanted: Callable[[], int]
    """What should be served; blocking. Raises StoreError."""
    unqualified: Callable[[Weights], str | None]
    """Why a reload in place is not trusted; None if it is. Blocking; raises CheckpointError, OSError."""
    model: str
    """As clients call it."""
    adapters: bool
    """Whether the engine takes adapters."""


async def plan(tools: Tools, order: SwapOrder, served: Weights) -> tuple[Weights, Choice]:
    """Fetch, check and choose the way. Raises Failed."""
    try:
        limits_for(*DEFAULT_DTYPES, order.limits)
        new = await tools.fetch(order.version)
        if order.probe is ProbeRule.REQUIRED and new.probe is None and new.number != BASE:
            raise Failed(f"{new.label} was published without a probe, and the order demands one")
        change = await asyncio.to_thread(change_between, served, new)
        why = None
        if change.swap is Swap.IN_PLACE:
            why = await asyncio.to_thread(tools.unqualified, new)
        return new, choose(order.way, change, unqualified=why, adapters=tools.adapters)
    except (CheckpointError, OSError, Refused) as error:
        raise Failed(str(error)) from error


async def drain(tools: Tools, order: SwapOrder) -> int:
    """Nothing new; what runs may end within `wait_s`, then it is ended. Returns how many were.

    Raises Failed if they do not end.
    """
    await tools.keeper.leave(Why.SWAP)
    async with tools.keeper.control() as control:
        running = await _fewer(control, order.wait_s)
        if not running:
            return 0
        await control.set_guard({"end": "abort" if order.then is InFlight.ABORT else "cut"})
        if await _fewer(control, END_S):
            raise Failed(f"requests did not end within {END_S:g} s of being told to")
        return running


async def _fewer(control: EngineControl, wait_s: float) -> int:
    """How many requests run when none does or the time is up."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    while (running := (await control.guard()).in_flight) and loop.time() < end:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    return running


async def load_in_place(tools: Tools, new: Weights, limit_s: float) -> ReloadTimings:
    """Load full weights over those that are there, and label them. Raises Failed, Lost, Untouched."""
    if new.folder is None:
        raise Untouched(f"{new.label} does not lie on this machine")
    async with tools.keeper.control() as control:
        try:
            timings = await reload_in_place(
                control, new.folder, label=new.label, timeout_s=limit_s, wait_s=END_S
            )
        except ReloadFailed as error:
            if error.weights_known:
                raise Untouched(str(error)) from error
            if isinstance(error.__cause__, EngineRefused):
                raise Failed(str(error)) from error
            raise Lost(str(error)) from error
        await label(control, tools.model, new)
    tools.keeper.serves(new)
    return timings


class Untouched(Failed):
    """The engine still has the weights from before, and goes on."""


async def label(control: EngineControl, model: str, weights: Weights) -> None:
    """From the next request on, answers are these weights', and requests for the model go to them."""
    name = weights.adapter_name
    adapter = None if name is None else {"model": model, "name": name}
    await control.set_guard({"version": weights.label, "adapter": adapter})


async def relaunch(tools: Tools, weights: Weights) -> Run:
    """Start the engine anew on these weights, out of rotation. Raises EngineEnded, EngineRefused."""
    run = await tools.keeper.relaunch(weights)
    await complete_launch(tools.keeper, tools.model, run)
    return run


async def complete_launch(keeper: Keeper, model: str, run: Run) -> None:
    """What cannot be said on the command line: the adapter, and the label with it."""
    if run.weights.adapter is None:
        return
    async with keeper.control() as control:
        await load_adapter(control, run, run.weights.adapter_name, run.weights.adapter)
        await label(control, model, run.weights)


async def load_adapter(control: EngineControl, run: Run, name: str | None, folder: Path | None) -> None:
    """Load it unless it is there."""
    if name is None or folder is None or name in run.adapters:
        return
    await control.load_adapter(name, folder, limit_s=SHORT_S)
    run.adapters.append(name)


async def unload_adapters(control: EngineControl, run: Run, keep: set[str | None]) -> None:
    """Forget adapters that nothing is asked of any more."""
    for name in [name for name in run.adapters if name not in keep]:
        await control.unload_adapter(name, limit_s=SHORT_S)
        run.adapters.remove(name)


async def prove(
    tools: Tools, order: SwapOrder, new: Weights, served: Weights, before: Fingerprint | None
) -> Report | None:
    """Replay the probe; where it cannot tell, ask whether anything moved. Raises NotProved.

    `before`: what the engine said with the weights that it served; None after a restart.
    """
    report: Report | None = None
    if order.probe is not ProbeRule.OFF:
        report = await asyncio.to_thread(tools.questioner.replay, new, order.limits)
        if report is not None and not report.passed:
            raise NotProved(f"the probe failed: {summary(report)}", report)
    if before is None:
        return report
    now = await asyncio.to_thread(tools.questioner.fingerprint, new)
    if new.digest == served.digest:
        if not same(now, before):
            raise NotProved("the very weights that were served answer differently after the reload", report)
    elif (
        now == before
        and (report is None or not report.moved)
        and not await asyncio.to_thread(same_tensors, served, new)
    ):
        raise NotProved("nothing moved: the engine answers bit for bit what it answered before", report)
    return report


class NotProved(Failed):
    """The engine does not compute what it should."""

    def __init__(self, message: str, report: Report | None) -> None:
        super().__init__(message)
        self.report = report


async def prove_old(tools: Tools, served: Weights, before: Fingerprint | None) -> None:
    """Show that the weights from before are back. Raises Failed."""
    report = await asyncio.to_thread(tools.questioner.replay, served, {})
    if report is not None and not report.passed:
        raise Failed(f"the old weights fail their probe: {summary(report)}")
    if before is not None:
        now = await asyncio.to_thread(tools.questioner.fingerprint, served)
        if not same(now, before):
            raise Failed("the old weights do not answer as they did before the swap")


async def warm_up(tools: Tools, new: Weights, requests: int) -> None:
    """Let the engine answer a few requests before clients wait for it."""
    async with tools.keeper.control() as control:
        for _ in range(requests):
            await control.complete(new.adapter_name or tools.model, WARM_IDS, WARM_TOKENS, limit_s=SHORT_S)
