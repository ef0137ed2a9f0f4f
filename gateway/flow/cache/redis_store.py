"""Answers kept in Redis, for all workers and replicas. Whatever Redis does, no request fails or waits long.

Look-ups that wait at the same time travel as one MGET; writes are collected and travel as one pipeline, after
the requests. A look-up takes `timeout_s` at most. After a few failures in a row Redis is left alone, and
a task of our own, no request, finds out when it answers in time again. Where it answers but does not
write (read-only, full), look-ups go on. The log gets a line at each change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Final

from gateway.fleet.breaker import Breaker, Position
from gateway.flow.cache import entry as entries
from gateway.flow.cache.entry import Entry
from gateway.flow.cache.redis_client import UNANSWERED, Remote
from gateway.tasks import TaskOwner

logger = logging.getLogger(__name__)

FAILURES: Final = 2
"""In a row: one late answer may be chance."""

OPEN_S: Final = 0.5
MAX_OPEN_S: Final = 5.0

CONNECT_S: Final = 1.0
"""A probe may take so long to connect; then it must answer within the budget of a look-up."""

WRITE_S: Final = 2.0
REFUSED_S: Final = 2.0
"""How long nothing is written after Redis refused to."""

MAX_PENDING_BYTES: Final = 16 * 1024 * 1024
"""Answers that wait to be written; what comes on top is not kept."""

MAX_WRITES: Final = 256
"""In one pipeline."""

Then = Callable[[Entry | None], None]

_FAILURES = (*UNANSWERED, ValueError)


class RedisStore:
    """`failed` is called for each failure, to be counted."""

    def __init__(
        self,
        remote: Remote,
        *,
        timeout_s: float,
        ttl_s: float,
        tasks: TaskOwner,
        random: Random,
        failed: Callable[[], None],
    ) -> None:
        self._remote = remote
        self._timeout_s = timeout_s
        self._ttl_s = ttl_s
        self._tasks = tasks
        self._random = random
        self._failed = failed
        self._breaker = Breaker(FAILURES, OPEN_S, MAX_OPEN_S)
        self._wanted: dict[bytes, list[Then]] = {}
        self._reading = False
        self._kept: dict[bytes, bytes] = {}
        self._kept_bytes = 0
        self._writing = False
        self._refused_until = 0.0

    @property
    def answers(self) -> bool:
        """Whether Redis is in use now."""
        return self._breaker.position is Position.CLOSED

    def __repr__(self) -> str:
        return f"<RedisStore {self._breaker!r} wanted={len(self._wanted)} kept={len(self._kept)}>"

    # Look-ups

    def get(self, key: bytes, then: Then) -> None:
        """Call `then` with the answer or None: at once if Redis is not in use, else within the budget."""
        if not self.answers:
            then(None)
            return
        self._wanted.setdefault(key, []).append(then)
        if not self._reading:
            self._reading = True
            self._tasks.start("look up answers", self._read())

    async def _read(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                values = await self._ask(list(wanted))
                if values is None:
                    # Those who came meanwhile have waited too.
                    late, self._wanted = self._wanted, {}
                    for thens in (*wanted.values(), *late.values()):
                        _tell(thens, None)
                else:
                    for thens, value in zip(wanted.values(), values, strict=True):
                        _tell(thens, entries.decode(value) if value is not None else None)
        finally:
            self._reading = False
            left, self._wanted = self._wanted, {}
            for thens in left.values():
                _tell(thens, None)

    async def _ask(self, keys: list[bytes]) -> list[bytes | None] | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                values = await self._remote.read(keys)
        except _FAILURES as error:
            self._broke(error)
            return None
        self._breaker.ok()
        return values

    # Writes

    def put(self, key: bytes, entry: Entry) -> None:
        """Keep it, some time soon; or not, if Redis does not take it."""
        if not self.answers or monotonic() < self._refused_until:
            return
        data = entries.encode(entry)
        if self._kept_bytes + len(data) > MAX_PENDING_BYTES:
            return
        self._kept_bytes += len(data) - len(self._kept.get(key, b""))
        self._kept[key] = data
        if not self._writing:
            self._writing = True
            self._tasks.start("keep answers", self._write())

    async def _write(self) -> None:
        try:
            while self._kept and self.answers:
                some = dict(list(self._kept.items())[:MAX_WRITES])
                for key in some:
                    self._kept_bytes -= len(self._kept.pop(key))
                async with asyncio.timeout(WRITE_S):
                    await self._remote.write(some, self._ttl_s)
                if self._refused_until:
                    self._refused_until = 0.0
                    logger.info("Answers are kept in Redis again")
        except _FAILURES as error:
            self._failed()
            if not self._refused_until and self.answers:
                logger.warning("Answers are not kept in Redis: it does not take them (%s)", _why(error))
            self._refused_until = monotonic() + REFUSED_S
            self._kept.clear()
            self._kept_bytes = 0
        finally:
            self._writing = False

    # Failing and healing

    def _broke(self, error: Exception) -> None:
        self._failed()
        if self._breaker.failed(monotonic(), self._random.random()):
            logger.warning("The cache goes on without Redis: it does not answer (%s)", _why(error))
            self._tasks.start("probe Redis", self._heal())

    async def _heal(self) -> None:
        breaker = self._breaker
        while not self.answers:
            await asyncio.sleep(max(0.0, breaker.until - monotonic()))
            breaker.cool(monotonic())
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self._remote.ping()
                async with asyncio.timeout(self._timeout_s):
                    await self._remote.ping()
            except _FAILURES:
                self._failed()  # alerts see by these that it is still away, even if nobody asks
                breaker.failed(monotonic(), self._random.random())
            else:
                breaker.ok()
        logger.info("The cache uses Redis again")

    # For operators

    async def count(self) -> int | None:
        """Answers that are kept; None if Redis does not say."""
        try:
            async with asyncio.timeout(WRITE_S):
                return await self._remote.count()
        except _FAILURES:
            return None

    async def clear(self) -> int | None:
        """Forget all answers. How many there were; None if Redis could not be reached."""
        self._kept.clear()
        self._kept_bytes = 0
        try:
            return await self._remote.clear()
        except _FAILURES:
            return None

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._remote.close()
        except _FAILURES:
            pass


def _tell(thens: list[Then], entry: Entry | None) -> None:
    for then in thens:
        then(entry)


def _why(error: Exception) -> str:
    """The kind of a failure, and what Redis said: never more of it than a line."""
    said = str(error).splitlines()
    return f"{type(error).__name__}: {said[0][:200]}" if said else type(error).__name__
