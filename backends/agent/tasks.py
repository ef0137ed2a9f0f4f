"""The tasks of one agent: named, owned by a task group, and cancelled together when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """What fails in one of them ends the group, as everywhere."""

    def __init__(self, group: asyncio.TaskGroup, owner: str) -> None:
        self._group = group
        self._owner = owner
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work, name=f"{self._owner}:{name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """All that run now; the group waits for their end."""
        for task in list(self._running):
            task.cancel()
