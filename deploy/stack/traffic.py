"""A steady trickle of `/predict` through the edge, at times that do not depend on the answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2

RATE = 10.0
"""Requests a second: far below what nginx/edge.env lets one client."""
LIMIT_S = 30.0


@dataclass(slots=True)
class Traffic:
    """What came of it: answers by status, failures by their type."""

    url: str
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        return sum(count for outcome, count in self.outcomes.items() if outcome != "200")

    async def one(self, client: httpx2.AsyncClient, number: int) -> None:
        """A prompt of its own, so that neither cache nor joining answers it."""
        try:
            answer = await client.post("/predict", json={"prompt": f"Request {number}", "max_tokens": 2})
            self.outcomes[str(answer.status_code)] += 1
        except httpx2.HTTPError as error:
            self.outcomes[type(error).__name__] += 1


@asynccontextmanager
async def traffic(url: str) -> AsyncIterator[Traffic]:
    """`RATE` requests a second, until the end of the block; then those under way are waited for."""
    sent = Traffic(url)
    limits = httpx2.Limits(max_connections=int(RATE * LIMIT_S))
    client = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=LIMIT_S, limits=limits)
    async with client, asyncio.TaskGroup() as group:
        pacing = group.create_task(_pace(sent, client, group), name="traffic")
        try:
            yield sent
        finally:
            pacing.cancel()


async def _pace(sent: Traffic, client: httpx2.AsyncClient, group: asyncio.TaskGroup) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    number = 0
    while True:
        group.create_task(sent.one(client, number), name=f"request {number}")
        number += 1
        await asyncio.sleep(max(0.0, began + number / RATE - loop.time()))
