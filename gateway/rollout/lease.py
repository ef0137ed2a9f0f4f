"""Who leads: exactly one gateway at a time decides about rollouts.

On one machine a locked file decides, which the kernel lets go when its holder ends, however it ends.
Between machines a key in Redis does, which its holder renews. A lease is a means against doing work twice,
not against harm: everything a leader does is an order that can be repeated or a compare-and-swap in the
store, so one that was slow and led on for a moment breaks nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from pathlib import Path
from typing import Final, Protocol

from redis.asyncio import Redis, RedisCluster

from gateway.flow.cache.redis_client import UNANSWERED

logger = logging.getLogger(__name__)

TTL_S = 10.0
"""A leader that is gone without a word is followed after this time."""
MARGIN_S = 2.0
"""A leader counts itself out so long before Redis does: clocks and answers are slow."""
TIMEOUT_S = 2.0


class Lease(Protocol):
    """Asked before each round, and again before each step of it."""

    async def hold(self) -> bool:
        """Take or renew it. Never raises for what the other side does."""

    @property
    def held(self) -> bool:
        """Whether it is held now, as far as is known here."""

    @property
    def term(self) -> int:
        """Grows with each new leader, where that can be known."""

    async def release(self) -> None:
        """Let others lead at once."""


class FileLease:
    """A locked file in a folder that the gateways of one machine share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    @property
    def held(self) -> bool:
        return self._fd >= 0

    @property
    def term(self) -> int:
        return 0

    async def hold(self) -> bool:
        if self._fd >= 0:
            return True
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    async def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_HOLD: Final = """
-- KEYS[1]: the lease, KEYS[2]: its terms. ARGV: the owner, milliseconds.
-- Answers the term of this owner, or 0 if another holds it.
local kept = redis.call('GET', KEYS[1])
if kept then
  local owner, term = string.match(kept, '^(.*)#(%d+)$')
  if owner ~= ARGV[1] then return 0 end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(term)
end
local term = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1] .. '#' .. term, 'PX', ARGV[2])
return term
"""
_RELEASE: Final = """
local kept = redis.call('GET', KEYS[1])
if kept and string.match(kept, '^(.*)#%d+$') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisLease:
    """A key in Redis that its holder renews. While Redis does not answer, nobody leads."""

    def __init__(self, redis: Redis | RedisCluster, name: str, owner: str, ttl_s: float = TTL_S) -> None:
        """`name`: the same for all who would lead the same rollouts; `owner`: unlike anybody else's."""
        self._redis = redis
        self._owner = owner
        # In braces, so that a cluster keeps both in one place.
        self._keys = [f"changeover:rollout:{{{name}}}:lease", f"changeover:rollout:{{{name}}}:term"]
        self._hold = redis.register_script(_HOLD)
        self._release = redis.register_script(_RELEASE)
        self._ttl_s = ttl_s
        self._until = 0.0
        self._term = 0
        self._failing = False

    @property
    def held(self) -> bool:
        return time.monotonic() < self._until

    @property
    def term(self) -> int:
        return self._term

    async def hold(self) -> bool:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                term = int(await self._hold(keys=self._keys, args=[self._owner, int(self._ttl_s * 1000)]))
        except UNANSWERED as error:
            self._complain(error)
            return self.held
        self._failing = False
        self._term = term or self._term
        self._until = asked + self._ttl_s - min(MARGIN_S, self._ttl_s / 2) if term else 0.0
        return self.held

    async def release(self) -> None:
        self._until = 0.0
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._release(keys=self._keys[:1], args=[self._owner])
        except UNANSWERED as error:
            self._complain(error)
        await self._redis.aclose()

    def _complain(self, error: Exception) -> None:
        if not self._failing:
            logger.warning("Who leads rollouts cannot be agreed on: Redis fails (%r)", error)
        self._failing = True
