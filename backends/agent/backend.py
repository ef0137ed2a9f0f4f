"""One backend as its control API sees it: the keeper of an engine, and the swaps of its weights."""

from __future__ import annotations

from dataclasses import replace

from backends.agent.api import CannotSwap
from backends.agent.keeper import Keeper
from backends.agent.orders import NoSuchSwap
from backends.contract import BackendStatus, GuardStatus, SwapOrder, SwapStatus

NO_STORE = "weights are not changed here: set `checkpoints.store` to where versions are published"


class Fixed:
    """A backend whose weights never change: no store is configured."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def status(self) -> BackendStatus:
        status = self._keeper.status()
        return replace(status, wanted=status.version)

    async def set_draining(self, draining: bool) -> GuardStatus:
        return await self._keeper.set_draining(draining)

    async def prepare(self, version: int) -> BackendStatus:
        raise CannotSwap(NO_STORE)

    async def swap(self, order: SwapOrder) -> SwapStatus:
        raise CannotSwap(NO_STORE)

    def swap_status(self, swap_id: str) -> SwapStatus:
        raise NoSuchSwap(NO_STORE)

    async def release(self, swap_id: str) -> SwapStatus:
        raise CannotSwap(NO_STORE)

    def stop(self) -> None:
        self._keeper.stop()
