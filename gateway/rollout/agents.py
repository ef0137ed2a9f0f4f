"""What the members' agents say, looked at often enough and no oftener, and the orders given to them.

A look at a member costs its agent and this process a little, so those that are on their way are looked at
each time, the others in turn, `AT_ONCE` in a round. One that does not answer is one whose state nobody
knows: what it said before does not count.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from backends.agent.client import AgentClient, AgentRefused, AgentUnreachable
from backends.contract import BackendStatus, State, SwapStatus
from gateway.rollout.places import is_drained
from gateway.rollout.steps import Prepare, Release, Swap

logger = logging.getLogger(__name__)

AT_ONCE = 64
"""Agents that are asked at a time."""

Order = Prepare | Swap | Release


@dataclass(slots=True)
class _Known:
    control: Path | str
    client: AgentClient
    stack: AsyncExitStack
    since: float
    """When it answered last, or was first looked for."""
    looked: float = -1e9
    drained_since: float | None = None
    """Since when an operator keeps it out of rotation."""
    status: BackendStatus | None = None

    @property
    def on_its_way(self) -> bool:
        """It will soon say something else."""
        status = self.status
        if status is None or status.state is not State.READY:
            return True
        fetching = status.preparing is not None and not (status.preparing.ready or status.preparing.error)
        return fetching or (status.swap is not None and status.swap.outcome is None)


class Agents:
    """The agents of one model's members. `follow` says who they are; on one loop."""

    def __init__(self, token_of: Callable[[Path | str], str]) -> None:
        """`token_of` gives the token for a control address; raises OSError where there is none."""
        self._token_of = token_of
        self._known: dict[str, _Known] = {}

    async def follow(self, controls: Mapping[str, Path | str]) -> None:
        """The members that have agents now, by name."""
        for name in [name for name, known in self._known.items() if controls.get(name) != known.control]:
            await self._known.pop(name).stack.aclose()
        for name, control in controls.items():
            if name not in self._known:
                client = AgentClient(control, self._token_of(control))
                stack = AsyncExitStack()
                await stack.enter_async_context(client)
                self._known[name] = _Known(control, client, stack, time.monotonic())

    async def look(self, every_s: float) -> None:
        """Ask those who were not asked for `every_s`, and all that are on their way; as many as may be."""
        now = time.monotonic()
        due = [known for known in self._known.values() if known.on_its_way or now - known.looked >= every_s]
        due.sort(key=lambda known: (not known.on_its_way, known.looked))
        await asyncio.gather(*(self._look_at(known) for known in due[:AT_ONCE]))

    def status(self, name: str) -> BackendStatus | None:
        """What it said last; None: it does not answer, or was never asked."""
        known = self._known.get(name)
        return known.status if known is not None else None

    def away_s(self, name: str) -> float:
        """For how long it has not answered, or was kept out of rotation by an operator; else 0."""
        known = self._known.get(name)
        if known is None:
            return 0.0
        since = known.since if known.status is None else known.drained_since
        return time.monotonic() - since if since is not None else 0.0

    @property
    def moving(self) -> bool:
        """Somebody will soon say something else."""
        return any(known.status is not None and known.on_its_way for known in self._known.values())

    async def give(self, orders: Iterable[Order]) -> None:
        """Give the orders, many at a time. One that cannot be given is given again by the next plan."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(order: Order) -> None:
            async with limit:
                await self._give(order)

        await asyncio.gather(*(one(order) for order in orders))

    async def close(self) -> None:
        await self.follow({})

    async def _look_at(self, known: _Known) -> None:
        known.looked = time.monotonic()
        try:
            known.status = status = await known.client.status()
            known.since = time.monotonic()
        except AgentUnreachable:
            known.status = None
            return
        if not is_drained(status):
            known.drained_since = None
        elif known.drained_since is None:
            known.drained_since = known.since

    async def _give(self, order: Order) -> None:
        known = self._known.get(order.member)
        if known is None:
            return
        try:
            match order:
                case Prepare():
                    known.status = await known.client.prepare(order.version)
                case Swap():
                    self._note(known, await known.client.swap(order.order))
                case Release():
                    self._note(known, await known.client.release(order.id))
        except AgentRefused as error:
            logger.warning("%s refuses: %s", order.member, error)
        except AgentUnreachable as error:
            known.status = None
            logger.warning("%s cannot be told: %s", order.member, error)

    def _note(self, known: _Known, swap: SwapStatus) -> None:
        if known.status is not None:
            known.status = replace(known.status, swap=swap)
