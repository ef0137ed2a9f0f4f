"""Where the cache's Redis may be: one server, a cluster, or what Sentinels name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from gateway.flow.cache.redis_client import PREFIX, Remote
from tests.drivers.valkey import Valkey, valkey
from tests.drivers.waiting import eventually


@asynccontextmanager
async def at(url: str) -> AsyncIterator[Remote]:
    remote = Remote.at(url)
    try:
        yield remote
    finally:
        await remote.close()


async def keeps_answers(url: str) -> None:
    async with at(url) as remote:
        await remote.write({b"a": b"1", b"b": b"2"}, ttl_s=60)
        assert await remote.read([b"b", b"missing", b"a"]) == [b"2", None, b"1"]
        assert await remote.count() == 2
        assert await remote.clear() == 2
        assert await remote.read([b"a", b"b"]) == [None, None]


async def test_one_server() -> None:
    with valkey() as redis:
        await keeps_answers(redis.url)


async def test_a_password_and_a_database() -> None:
    with valkey(password="p@ss/word") as redis:
        await keeps_answers(f"redis://:p%40ss%2Fword@127.0.0.1:{redis.server.port}/3")


async def test_a_cluster() -> None:
    with valkey(cluster_enabled="yes") as redis:
        control: Redis = Redis.from_url(redis.url)
        await control.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")  # type: ignore[no-untyped-call]

        async def whole() -> bool:
            return b"cluster_state:ok" in await control.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]

        await eventually(whole)
        await keeps_answers(f"redis+cluster://127.0.0.1:{redis.server.port}")
        await control.aclose()


async def test_an_answer_is_forgotten_in_time() -> None:
    with valkey() as redis:
        async with at(redis.url) as remote:
            await remote.write({b"a": b"1"}, ttl_s=0.01)
            await eventually(lambda: _gone(redis))


def _gone(redis: Valkey) -> bool:
    with redis.client() as control:
        return not control.exists(PREFIX + b"a")


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://127.0.0.1:9,127.0.0.1:8/mymaster/0",
        "rediss+sentinel://user:secret@127.0.0.1:9/mymaster?sentinel_password=x",
        "redis+cluster://127.0.0.1:9",
        "rediss://127.0.0.1:9/0",
        "unix:///nowhere/redis.sock",
    ],
)
async def test_nothing_is_connected_to_before_it_is_used(url: str) -> None:
    async with at(url) as remote:
        assert remote


@pytest.mark.parametrize("url", ["redis+sentinel://a:1", "redis+sentinel:///master"])
def test_a_sentinel_needs_places_and_a_master(url: str) -> None:
    with pytest.raises(ValueError, match="name-of-the-master"):
        Remote.at(url)
