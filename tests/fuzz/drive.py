"""Sends a campaign's inputs through one gateway, many at a time, and looks what they have left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.fuzz.tally import Tally
from tests.gateways import Running

AT_A_TIME = 16
RESTS_WITHIN_S = 10.0


async def drive(
    gateway: Running, count: int, tally: Tally, send: Callable[[int], Awaitable[None]], *, what: str
) -> None:
    """Inputs 0 to `count`, each sent once; then every count must be 0, and no exception in the log."""
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            tally.inputs += 1
            await send(number)

    await asyncio.gather(*(client() for _ in range(AT_A_TIME)))
    try:
        await gateway.comes_to_rest(within=RESTS_WITHIN_S)
    except (AssertionError, TimeoutError) as error:
        tally.leak(f"after {count} inputs of {what}: {error}")
    for record in gateway.logged:
        if record.exc_info:
            tally.crash(f"{what}: {record.getMessage()}: {record.exc_info[1]!r}")
            record.exc_info = None
