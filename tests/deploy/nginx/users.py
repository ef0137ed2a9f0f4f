"""Users of the edge who ask without a pause, each form in turn, and write down what went wrong for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.drivers.raw import ask
from tests.drivers.sse import record
from tests.gateways import FORMS


@dataclass(slots=True)
class Served:
    whole: int = 0
    """Requests that were answered as they should."""
    wrong: Counter[str] = field(default_factory=Counter)
    """What the others got."""


@asynccontextmanager
async def users(url: str, count: int, forms: tuple[str, ...] = tuple(FORMS)) -> AsyncIterator[Served]:
    """So many at a time, until the end of the block."""
    served = Served()
    ended = asyncio.Event()

    async def user(number: int) -> None:
        turn = number
        while not ended.is_set():
            turn += 1
            problem = await _one(url, forms[turn % len(forms)])
            if problem:
                served.wrong[problem] += 1
            else:
                served.whole += 1

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(user(number), name=f"user {number}")
        try:
            yield served
        finally:
            ended.set()


async def _one(url: str, form: str) -> str:
    """What went wrong, in words; nothing if nothing did."""
    path, body = FORMS[form]
    try:
        if body.get("stream"):
            stream = await record(url, path, body)
            whole = stream.status == 200 and stream.done and not stream.errors
            return "" if whole else f"{form} {stream.status} {stream.ended.name} {stream.content[-120:]!r}"
        answer = await ask(url, path, body)
    except (OSError, AssertionError) as error:
        return f"{form} {type(error).__name__}: {error}"
    return "" if answer.status == 200 else f"{form} {answer.status} {answer.body[:120]!r}"
