"""What it costs to look after a fleet: probes a second, and the processor time of one, measured here."""

from __future__ import annotations

import asyncio
import time

from gateway.settings.tree import Health
from gateway.upstream.address import parse_address
from gateway.upstream.fetch import fetch
from gateway.upstream.pool import Pool
from tests.drivers.process import running_fake
from tests.simulation.experiments import Row

PROBES = 2000
FLEETS = ((100, 1), (1000, 1), (1000, 4), (10_000, 1), (10_000, 4))


def control_traffic() -> list[Row]:
    """Engines, workers that each probe all of them, probes a second in all, cores they take."""
    cost_s = asyncio.run(_probe_cost_s())
    interval_s = Health().interval_s
    rows: list[Row] = []
    for engines, workers in FLEETS:
        per_s = engines * workers / interval_s
        rows.append([engines, workers, per_s, per_s * cost_s])
    return rows


async def _probe_cost_s() -> float:
    """Processor time of this process for one probe over a connection that is kept."""
    async with running_fake() as fake:
        pool = Pool(parse_address(fake.url), connect_s=2.0)
        await fetch(pool, "GET", "/health", timeout_s=2.0)
        began = time.process_time()
        for _ in range(PROBES):
            await fetch(pool, "GET", "/health", timeout_s=2.0)
        cost = (time.process_time() - began) / PROBES
        pool.close()
        return cost
