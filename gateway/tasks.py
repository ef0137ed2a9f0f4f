"""Background tasks with an owner and a name: the only place where a task is created.

An owner keeps its tasks alive, reports the one that ends in an unexpected error (log and `failed`), and
cancels what is left when it closes. Each component that needs tasks has an owner of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0
"""How long cancelled tasks may take to clean up when an owner is left as a context manager."""

AGAIN_S = 1.0
"""A task that has not ended by then is cancelled again: up to Python 3.11 `asyncio.wait_for`, which clients
of Redis use, loses a cancellation that comes in the very turn in which it has its result (bpo-37658)."""


def _nothing(name: str) -> None:
    pass


class TaskOwner:
    """Owns tasks of the running loop. Not thread-safe."""

    def __init__(self, owner: str, *, failed: Callable[[str], None] = _nothing) -> None:
        """`owner` prefixes the tasks' names. `failed` is called with the name of a task that failed."""
        self._owner = owner
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"<TaskOwner {self._owner} {', '.join(self.names()) or 'idle'}>"

    def start(self, name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task. Who awaits it gets its error; it is logged all the same.

        Raises RuntimeError (and closes the coroutine) if the owner is closed.
        """
        if self._closed:
            coroutine.close()
            raise RuntimeError(f"{self._owner} is closed and starts no task {name!r}")
        task = asyncio.create_task(coroutine, name=f"{self._owner}:{name}")  # noqa: TID251  # the one place
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def names(self) -> list[str]:
        """Names of the tasks that have not ended, in order."""
        return sorted(task.get_name() for task in self._tasks)

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Cancel everything, again each `AGAIN_S`, until it has ended; after `timeout_s` say what would not.

        Cancelling `close` leaves the tasks cancelled but does not wait for them. Idempotent.
        """
        self._closed = True
        current = asyncio.current_task()
        left = {task for task in self._tasks if task is not current}
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=max(0.0, min(AGAIN_S, deadline - clock())))
            if clock() >= deadline:
                break
        for task in left:
            logger.warning("Task %s does not end after being cancelled", task.get_name())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("Task %s failed", task.get_name(), exc_info=error)
            self._failed(task.get_name())
