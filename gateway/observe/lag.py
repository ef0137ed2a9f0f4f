"""How late the event loop is: a timer that should have fired a moment ago.

Samples with `call_later`, so that it costs no task. One for each loop.
"""

from __future__ import annotations

import asyncio

from gateway.observe.handles import Histogram

INTERVAL_S = 0.1


class LagSampler:
    """Observes the loop's lag in seconds, ten times a second, from `start` to `stop`."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin on the running loop. Raises RuntimeError if there is none."""
        self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(INTERVAL_S, self._sample, loop, loop.time() + INTERVAL_S)

    def _sample(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._histogram.observe(max(0.0, loop.time() - due))
        self._arm(loop)
