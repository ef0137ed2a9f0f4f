"""One backend as its control API sees it: the keeper of an engine, and the swaps of its weights.

`Fixed` where no store is configured, else `Swapping`, which also decides what the engine is launched with.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import httpx2

from backends.agent import steps
from backends.agent.api import CannotSwap, Superseded
from backends.agent.assignment import Assignment
from backends.agent.checking import change_between
from backends.agent.copies import Copies
from backends.agent.fetching import Fetches, TooMany
from backends.agent.keeper import Keeper
from backends.agent.orders import NoSuchSwap, Orders
from backends.agent.proving import Questioner, summary
from backends.agent.qualified import Qualified
from backends.agent.runs import AlwaysBase, NotServable, Run
from backends.agent.tasks import Tasks
from backends.agent.transaction import Transaction
from backends.agent.wanted import Wanted
from backends.agent.weights import Weights
from backends.contract import BackendStatus, GuardStatus, Outcome, Phase, SwapOrder, SwapStatus, Way
from backends.qualify.background import Background
from backends.vllm.control import EngineRefused, address_of
from checkpoints.errors import CheckpointError
from checkpoints.store.store import Store

WANTED_EVERY_S = 5.0
NO_STORE = "weights are not changed here: set `checkpoints.store` to where versions are published"


class Fixed:
    """A backend whose weights never change."""

    def __init__(self, assignment: Assignment) -> None:
        self.keeper = Keeper(assignment, AlwaysBase(assignment.base), Random())

    async def run(self) -> None:
        """As `Keeper.run`."""
        await self.keeper.run()

    def status(self) -> BackendStatus:
        status = self.keeper.status()
        return replace(status, wanted=status.version, fixed=True)

    async def set_draining(self, draining: bool) -> GuardStatus:
        return await self.keeper.set_draining(draining)

    async def prepare(self, version: int) -> BackendStatus:
        raise CannotSwap(NO_STORE)

    async def swap(self, order: SwapOrder) -> SwapStatus:
        raise CannotSwap(NO_STORE)

    def swap_status(self, swap_id: str) -> SwapStatus:
        raise NoSuchSwap(NO_STORE)

    async def release(self, swap_id: str) -> SwapStatus:
        raise CannotSwap(NO_STORE)

    def stop(self) -> None:
        self.keeper.stop()


class Swapping:
    """A backend that serves what the store says."""

    proves = True

    def __init__(
        self,
        assignment: Assignment,
        store: Store,
        keep: int,
        tasks: Tasks,
        random: Random,
        background: Background | None = None,
    ) -> None:
        """`keep`: copies on this machine. `background`: qualifies what has no record, after its swap."""
        self.keeper = Keeper(assignment, self, random)
        self._assignment = assignment
        self._tasks = tasks
        self._copies = Copies(assignment.copies, store, assignment.base, keep)
        self._fetches = Fetches(self._copies, tasks)
        self._wanted = Wanted(store, assignment.copies / f"{assignment.name}.serving.json")
        self._wanted_label = ""
        self._orders = Orders()
        self._transaction: Transaction | None = None
        self._background = background
        settings = assignment.recipe.settings
        self._tools = steps.Tools(
            keeper=self.keeper,
            questioner=Questioner(address_of(assignment.listen), assignment.token, settings.dtype),
            fetch=self._fetches.get,
            wanted=self._wanted.read,
            unqualified=Qualified(store, assignment.recipe).why_not,
            model=assignment.model,
            adapters=settings.enable_lora,
        )

    async def run(self) -> None:
        """As `Keeper.run`."""
        self._tasks.start("wanted", self._follow_wanted())
        try:
            await self.keeper.run()
        finally:
            self._copies.close()

    # -- what an engine is launched with (`Launches`)

    async def next(self) -> Weights:
        try:
            weights = await self._fetches.get(await self._read_wanted())
        except (CheckpointError, OSError) as error:
            raise NotServable(f"what should be served cannot be: {error}") from error
        self._wanted_label = weights.label
        return weights

    async def prove(self, run: Run) -> None:
        weights = run.weights
        try:
            await steps.complete_launch(self.keeper, self._assignment.model, run)
            await asyncio.to_thread(self._tools.questioner.fingerprint, weights)  # its first is slow
            report = await asyncio.to_thread(self._tools.questioner.replay, weights, {})
            wanted = await self._read_wanted()
        except (CheckpointError, EngineRefused, httpx2.TransportError, OSError) as error:
            raise NotServable(str(error)) from error
        if report is not None and not report.passed:
            raise NotServable(f"{weights.label} fails its probe: {summary(report)}")
        if wanted != weights.number:
            raise NotServable(f"by now v{wanted} should be served, not {weights.label}")

    # -- what the control API asks

    def status(self) -> BackendStatus:
        return replace(
            self.keeper.status(),
            wanted=self._wanted_label,
            preparing=self._fetches.last,
            swap=self._orders.last,
        )

    async def set_draining(self, draining: bool) -> GuardStatus:
        return await self.keeper.set_draining(draining)

    async def prepare(self, version: int) -> BackendStatus:
        def check(weights: Weights) -> None:
            change_between(self.keeper.weights, weights)

        try:
            self._fetches.start(version, check)
        except TooMany as error:
            raise CannotSwap(str(error)) from error
        return self.status()

    async def swap(self, order: SwapOrder) -> SwapStatus:
        try:
            label, missing = await asyncio.to_thread(self._copies.label, order.version), None
        except (CheckpointError, OSError) as error:
            label, missing = f"v{order.version}", str(error)
        known = self._orders.take(order, label)
        if known is not None:
            return known
        status = self._orders.find(order.id)
        if missing is not None:
            self._orders.note(replace(status, phase=Phase.ENDED, outcome=Outcome.SERVING_OLD, reason=missing))
        else:
            self._begin(order, status)
        return self._orders.find(order.id)

    def swap_status(self, swap_id: str) -> SwapStatus:
        return self._orders.find(swap_id)

    async def release(self, swap_id: str) -> SwapStatus:
        status = self._orders.find(swap_id)
        if status.outcome is Outcome.SERVING_NEW:
            return status
        held = self._orders.held(swap_id)
        transaction = self._transaction
        wanted = await self._read_wanted()
        if transaction is None or wanted != transaction.weights[1].number:
            raise Superseded(f"v{wanted} should be served by now, not {held.version}")
        transaction.release()
        await transaction.ended.wait()
        return self._orders.find(swap_id)

    def stop(self) -> None:
        self.keeper.stop()

    # -- swaps

    def _begin(self, order: SwapOrder, status: SwapStatus) -> None:
        if self._transaction is not None:
            self._transaction.supersede()
        status = replace(status, way=Way.IN_PLACE if order.way is Way.AUTO else order.way)
        start_s = self._assignment.start_timeout_s
        transaction = Transaction(self._tools, order, status, self._orders.note, start_s)
        self._transaction = transaction
        self._tasks.start(f"swap:{order.id}", self._perform(transaction))

    async def _perform(self, transaction: Transaction) -> None:
        try:
            await transaction.perform()
        finally:
            transaction.ended.set()
        if self._transaction is transaction:
            self._transaction = None
            used = {self.keeper.weights, *transaction.weights}
            await asyncio.to_thread(self._copies.keep_only, used)
            await self._refresh_wanted()
            folder = self.keeper.weights.folder
            if self._background is not None and folder is not None:
                self._tasks.start("qualify", self._background.qualify(folder))

    async def _follow_wanted(self) -> None:
        """So that the status says what should be served; nothing is done about it here."""
        while True:
            await asyncio.sleep(WANTED_EVERY_S)
            await self._refresh_wanted()

    async def _refresh_wanted(self) -> None:
        try:
            number = await self._read_wanted()
            self._wanted_label = await asyncio.to_thread(self._copies.label, number)
        except (CheckpointError, OSError):
            return  # it is read again soon

    async def _read_wanted(self) -> int:
        return await asyncio.to_thread(self._wanted.read)
