"""Waiting for what will happen. The only place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

_POLL_S = 0.002


async def eventually(condition: Callable[[], Any], *, within: float = 5.0, what: str = "") -> Any:
    """The first true value of the condition, a function or coroutine function that is asked again and again.

    Fails after `within` seconds.

    An `AssertionError` of the condition counts as "not yet", and is the failure's cause if it stays.
    """
    deadline = time.monotonic() + within
    last: AssertionError | None = None
    while True:
        try:
            found = condition()
            value = await found if isawaitable(found) else found
            last = None
        except AssertionError as error:
            last, value = error, None
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or condition}") from last
        await asyncio.sleep(_POLL_S)


async def always(condition: Callable[[], object], *, during: float, what: str = "") -> None:
    """Fails as soon as the condition is not true within so many seconds."""
    deadline = time.monotonic() + during
    while time.monotonic() < deadline:
        if not condition():
            raise AssertionError(f"did not stay so for {during} s: {what or condition}")
        await asyncio.sleep(_POLL_S)


async def paced(seconds: float) -> None:
    """The pause between two steps of a client that is slow on purpose; not for waiting until something is."""
    await asyncio.sleep(seconds)
