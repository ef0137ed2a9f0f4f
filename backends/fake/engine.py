"""The engine that the fake pretends to have: weights and their label, slots, pauses, frozen time.

`weights` is what the text is made from, `label` what `/weight_info` and `x-model-version` say: they are two
things here as they are in vLLM, so that a label that lies is seen. Requests wait for a slot in order of
arrival, and while the engine is paused. Owned by `Fake`; one event loop, no locks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Engine:
    def __init__(self) -> None:
        self.weights = ""
        self.label = ""
        self.paused = False
        self.draining = False
        self.elsewhere = "draining"
        """Why nothing new is taken, while `draining`."""
        self.slots = 0
        """0: no limit."""
        self.running = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._moving = asyncio.Event()
        self._moving.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def stands_still(self) -> bool:
        return not self._moving.is_set()

    def serve(self, version: str) -> None:
        """Take on weights and label of this name."""
        self.weights = version
        self.label = version

    def limit(self, slots: int) -> None:
        self.slots = slots
        self._admit()

    def pause(self, hold_running: bool) -> None:
        """Let nothing new in; with `hold_running` what runs stands still as well."""
        self.paused = True
        if hold_running:
            self.stop_time()

    def resume(self) -> None:
        self.paused = False
        self.start_time()
        self._admit()

    def stop_time(self) -> None:
        self._moving.clear()

    def start_time(self) -> None:
        self._moving.set()

    async def in_motion(self) -> None:
        """Return when time does not stand still."""
        await self._moving.wait()

    async def is_idle(self) -> None:
        """Return when no request runs."""
        await self._idle.wait()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it. Cancellation leaves the queue or gives the slot back."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        if not self._queue and self._free():
            self._take()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # taken out already when it came to its turn
                    self._queue.remove(turn)
            else:  # admitted in the same turn of the loop in which it was cancelled
                self._leave()
            raise

    def _leave(self) -> None:
        self.running -= 1
        if not self.running:
            self._idle.set()
        self._admit()

    def _take(self) -> None:
        self.running += 1
        self._idle.clear()

    def _free(self) -> bool:
        return not self.paused and (self.slots == 0 or self.running < self.slots)

    def _admit(self) -> None:
        while self._queue and self._free():
            turn = self._queue.popleft()
            if not turn.cancelled():
                self._take()
                turn.set_result(None)
