from __future__ import annotations

import asyncio
import time

from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.lag import INTERVAL_S, LagSampler
from gateway.observe.metrics import Metrics


async def test_a_loop_that_is_held_up_shows_it(metrics: Metrics, cells: Cells) -> None:
    sampler = LagSampler(metrics.lag)
    sampler.start()
    held = INTERVAL_S + 0.3
    time.sleep(held)  # noqa: ASYNC251  # the fault itself: something blocks the loop
    total = metrics.lag.index + len(table.LAG_BUCKETS) + 1
    # Timers fire in the order in which they are due: the sampler's was due before this one.
    await asyncio.sleep(0.001)
    sampler.stop()
    sampler.stop()
    assert cells.values[total] >= 0.3
