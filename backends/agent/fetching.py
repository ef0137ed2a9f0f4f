"""Fetches of versions as tasks: one for each version, joined by whoever wants it too, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from backends.agent.copies import Copies
from backends.agent.tasks import Tasks
from backends.agent.weights import Weights
from backends.contract import PrepareStatus
from checkpoints.errors import CheckpointError, StoreError

AT_ONCE = 2
"""Versions that are copied at a time; more would only share the disk and the network."""


class TooMany(RuntimeError):
    """Enough is being fetched already; ask again."""


class Fetches:
    def __init__(self, copies: Copies, tasks: Tasks) -> None:
        self._copies = copies
        self._tasks = tasks
        self._running: dict[int, asyncio.Task[Weights]] = {}
        self.last: PrepareStatus | None = None
        """Of the version that was asked for last."""

    async def get(self, version: int) -> Weights:
        """The version on this machine. Cancelling leaves the fetch running. Raises as `Copies.fetch`."""
        task = self._begin(version)
        await asyncio.wait([task])
        return task.result()

    def start(self, version: int, check: Callable[[Weights], object]) -> None:
        """Fetch it and have it checked (blocking), in the background; `last` tells how far it is.

        Raises TooMany.
        """
        if len(self._running) >= AT_ONCE and version not in self._running:
            raise TooMany(f"{len(self._running)} versions are being fetched: ask again")
        self.last = PrepareStatus(f"v{version}")
        self._tasks.start(f"prepare:{version}", self._watch(version, check))

    async def _watch(self, version: int, check: Callable[[Weights], object]) -> None:
        try:
            weights = await self.get(version)
            await asyncio.to_thread(check, weights)
        except Exception as error:  # whatever it is, it is the answer to who asked
            condemned = isinstance(error, CheckpointError) and not isinstance(error, StoreError)
            self._tell(version, error=str(error) or type(error).__name__, condemned=condemned)
        else:
            self._tell(version, weights.label, ready=True)

    def _begin(self, version: int) -> asyncio.Task[Weights]:
        task = self._running.get(version)
        if task is None:
            loop = asyncio.get_running_loop()

            def progress(done: int, total: int) -> None:
                loop.call_soon_threadsafe(self._progress, version, done, total)

            work = asyncio.to_thread(self._copies.fetch, version, progress)
            task = self._running[version] = loop.create_task(work, name=f"fetch:{version}")
            task.add_done_callback(lambda done: self._ended(version, done))
        return task

    def _ended(self, version: int, task: asyncio.Task[Weights]) -> None:
        self._running.pop(version, None)
        if not task.cancelled():
            task.exception()  # whoever waits hears it; if nobody does, it is in `last`

    def _progress(self, version: int, done: int, total: int) -> None:
        if self.last is not None and self._is_last(version):
            self.last = replace(self.last, done_bytes=done, total_bytes=total)

    def _tell(
        self,
        version: int,
        label: str = "",
        *,
        ready: bool = False,
        error: str | None = None,
        condemned: bool = False,
    ) -> None:
        if self.last is not None and self._is_last(version):
            self.last = replace(
                self.last,
                version=label or self.last.version,
                ready=ready,
                error=error,
                condemned=condemned,
            )

    def _is_last(self, version: int) -> bool:
        return self.last is not None and self.last.version.partition("-")[0] == f"v{version}"
