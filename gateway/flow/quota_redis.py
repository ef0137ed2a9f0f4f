"""Quotas counted once for all workers and replicas: the buckets of `gateway.flow.quota`, kept in Redis.

Each process keeps its own buckets too, of the same size. They are asked first, so a request that this
process alone would refuse costs no round trip; and when Redis is slow, gone or refuses, they are what is
left: a key then has its limits in each process, and no request fails or waits longer than `timeout_s`.
A breaker keeps a dead Redis from costing that time more than a few times. `max_in_flight` holds for each
process: a count in Redis would be wrong for ever after a process was killed.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Final

from redis.asyncio import Redis, RedisCluster

from gateway.fleet.breaker import Breaker, Position
from gateway.flow.cache.redis_client import UNANSWERED
from gateway.flow.quota import Grant, Limit, LocalQuota, OverQuota
from gateway.settings.tree import Key
from gateway.tasks import TaskOwner

logger = logging.getLogger(__name__)

PREFIX: Final = "changeover:quota:"

FAILURES: Final = 3
"""Failures in a row after which Redis is left alone for a while."""

OPEN_S: Final = 1.0
MAX_OPEN_S: Final = 30.0

_TAKE: Final = """
-- KEYS[1]: the key's buckets. ARGV: requests a minute, tokens a minute (0: no limit), tokens asked for,
-- 1 to take even below zero (a settlement) or 0. Answers {0, 0}, or {which limit, milliseconds to wait}.
-- A full bucket is forgotten: that is what an unknown key has.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local kept = redis.call('HMGET', KEYS[1], 'at', 'requests', 'tokens')
local elapsed = math.max(0, now - (tonumber(kept[1]) or now))
local asked = {1, tonumber(ARGV[3])}
local forced = ARGV[4] == '1'
if forced then asked[1] = 0 end
local levels = {}
local idle_s = 0
for index = 1, 2 do
  local size = tonumber(ARGV[index])
  if size > 0 then
    local level = math.min(size, (tonumber(kept[index + 1]) or size) + elapsed * size / 60)
    local lacks = math.min(asked[index], size) - level
    if lacks > 0 and not forced then
      return {index, math.ceil(lacks * 60000 / size)}
    end
    levels[index] = math.min(size, level - asked[index])
    idle_s = math.max(idle_s, (size - levels[index]) * 60 / size)
  end
end
redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now),
  'requests', string.format('%.6f', levels[1] or 0), 'tokens', string.format('%.6f', levels[2] or 0))
redis.call('PEXPIRE', KEYS[1], math.ceil(idle_s * 1000) + 1000)
return {0, 0}
"""

_LIMITS: Final = (Limit.REQUESTS, Limit.TOKENS)


class RedisQuota:
    """`take` and `settle` never raise for what Redis does, and end within `timeout_s`.

    When `take` is cancelled, what was taken in Redis by then stays taken; in this process nothing does.
    """

    def __init__(
        self,
        local: LocalQuota,
        redis: Redis | RedisCluster,
        timeout_s: float,
        random: Random,
        tasks: TaskOwner,
    ) -> None:
        """`tasks` owns the settlements, for which no request waits."""
        self._local = local
        self._tasks = tasks
        self._redis = redis
        self._script = redis.register_script(_TAKE)
        self._timeout_s = timeout_s
        self._random = random
        self._breaker = Breaker(FAILURES, OPEN_S, MAX_OPEN_S)
        self._trying = False

    @property
    def shared(self) -> bool:
        """Whether Redis is in use now; otherwise each process counts for itself."""
        return self._breaker.position is Position.CLOSED

    async def take(self, key: Key, tokens: int, now: float) -> Grant | OverQuota:
        """Take what one request needs, here and in Redis, or nothing at all."""
        got = self._local.take(key.name, tokens, now)
        if isinstance(got, OverQuota) or not _limited(key):
            return got
        try:
            answer = await self._ask(key, tokens, forced=False, now=now)
        except asyncio.CancelledError:
            got.cancel(now)
            raise
        if answer is not None and answer[0] == 0:
            got.settle = lambda used, then: self._settle_later(key, tokens, used, then)
        if answer is None or answer[0] == 0:
            return got
        got.cancel(now)
        return OverQuota(_LIMITS[answer[0] - 1], max(1, -(-answer[1] // 1000)))

    async def close(self) -> None:
        """Close the connections to Redis."""
        await self._redis.aclose()

    def _settle_later(self, key: Key, estimated: int, used: int, now: float) -> None:
        if key.tokens_per_minute is not None and used != estimated:
            self._tasks.start("settle quota", self.settle(key, estimated, used, now))

    async def settle(self, key: Key, estimated: int, used: int, now: float) -> None:
        """The real usage is known: correct what was taken in Redis. (`Grant.close` does so here.)"""
        if key.tokens_per_minute is not None and used != estimated:
            await self._ask(key, used - estimated, forced=True, now=now)

    async def _ask(self, key: Key, tokens: int, *, forced: bool, now: float) -> tuple[int, int] | None:
        """Run the script; None if Redis is not in use or does not answer."""
        breaker = self._breaker
        breaker.cool(now)
        if breaker.position is Position.OPEN or (breaker.position is Position.HALF_OPEN and self._trying):
            return None
        self._trying = True
        arguments = [key.requests_per_minute or 0, key.tokens_per_minute or 0, tokens, int(forced)]
        try:
            async with asyncio.timeout(self._timeout_s):
                which, wait_ms = await self._script(keys=[PREFIX + key.name], args=arguments)
        except UNANSWERED as error:
            if breaker.failed(now, self._random.random()):
                logger.warning("quotas are counted by each process alone: Redis fails (%r)", error)
            return None
        finally:
            self._trying = False
        if breaker.ok():
            logger.info("quotas are shared again: Redis answers")
        return int(which), int(wait_ms)


def _limited(key: Key) -> bool:
    return key.requests_per_minute is not None or key.tokens_per_minute is not None
