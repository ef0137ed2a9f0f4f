"""Keeps one fleet up to date: who is in it, and a prober for each of them.

The only place that starts and ends probers. Sources of members: what the configuration names, the
backends of this machine, and names that are looked up again and again, or watched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gateway.fleet import probing
from gateway.fleet.discovery import Names
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Spec
from gateway.settings.tree import Endpoint, Health
from gateway.tasks import TaskOwner


class Keeper:
    """One for each fleet. `start` once, `close` once; `set_members` at any time between."""

    def __init__(self, fleet: Fleet, fixed: Sequence[Spec], names: Names, health: Health) -> None:
        self._fleet = fleet
        self._fixed = list(fixed)
        self._names = names
        self._health = health
        self._probers: dict[str, asyncio.Task[None]] = {}
        self._lookups: asyncio.Task[None] | None = None
        self._tasks = TaskOwner(f"keeper of {fleet.model}")

    async def start(self) -> None:
        """Take up the members that are known, and begin to look for the others."""
        self._apply()
        self._follow_names()

    def set_members(self, fixed: Sequence[Spec], endpoints: Sequence[Endpoint], health: Health) -> None:
        """The configuration has changed. Members that stay are not touched.

        Names among `endpoints` that were followed before keep what they gave until they give something else.
        """
        self._fixed = list(fixed)
        self._names.follow(endpoints)
        if health != self._health:
            self._health = health
            self._end_probers(list(self._probers))
        self._apply()
        self._follow_names()

    def retire(self) -> None:
        """The model is served no more: all its members go."""
        self.set_members([], (), self._health)

    async def close(self) -> None:
        await self._tasks.close()
        await self._names.close()
        for member in self._fleet.members:
            member.pool.close()

    def _follow_names(self) -> None:
        if self._lookups is not None:
            self._lookups.cancel()
            self._lookups = None
        if self._names:
            self._lookups = self._tasks.start("look up names", self._look_up())

    async def _look_up(self) -> None:
        while True:
            await self._names.refresh()
            self._apply()
            await self._names.wait(self._health.resolve_s)

    def _apply(self) -> None:
        _, gone = self._fleet.apply([*self._fixed, *self._names.members], time.monotonic())
        self._end_probers([member.name for member in gone])
        for member in self._fleet.members:
            if member.name not in self._probers:
                task = probing.watch(self._fleet, member, self._health)
                self._probers[member.name] = self._tasks.start(f"probe {member.name}", task)

    def _end_probers(self, names: Sequence[str]) -> None:
        for name in names:
            self._probers.pop(name).cancel()
