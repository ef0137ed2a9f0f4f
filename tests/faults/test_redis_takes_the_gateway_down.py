"""The cache's Redis is killed, frozen, full or slow, and with it every request is late or fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from redis.asyncio import Redis

from backends.fake import Behaviour, Fake
from gateway.flow.cache.redis_client import PREFIX
from gateway.flow.cache.redis_store import FAILURES
from gateway.observe.outcome import Outcome
from tests.drivers.many import many
from tests.drivers.raw import Response, ask
from tests.drivers.valkey import Valkey, slowly, valkey
from tests.drivers.waiting import eventually
from tests.gateways import Running, fakes, gateway_to

COMPLETIONS = "/v1/completions"
BUDGET_S = 0.05
NUMBERS = count()

GOES_ON = "The cache goes on without Redis"
HEALED = "The cache uses Redis again"


def body(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 2, "temperature": 0}


async def fresh(gateway: Running) -> Response:
    """A request that nobody has asked before."""
    return await ask(gateway.url, COMPLETIONS, body(f"never asked before {next(NUMBERS)}"))


async def warm(gateway: Running, prompt: str = "Hello") -> Response:
    return await ask(gateway.url, COMPLETIONS, body(prompt))


def state(answer: Response) -> str | None:
    return answer.header("x-cache")


def logged(gateway: Running, sentence: str) -> int:
    return sum(sentence in record.getMessage() for record in gateway.logged)


@asynccontextmanager
async def through(url: str, kind: str = "redis") -> AsyncIterator[tuple[Running, Fake]]:
    cache = {"type": kind, "url": url}
    async with fakes(1, Behaviour(version="v1")) as (fake,), gateway_to(fake, cache=cache) as gateway:
        yield gateway, fake


async def is_kept(gateway: Running, prompt: str = "Hello") -> None:
    """Return when this is answered from Redis."""

    async def hit() -> bool:
        return state(await warm(gateway, prompt)) == "hit"

    await eventually(hit, within=15, what="an answer from Redis")


async def in_trouble(gateway: Running, requests: int = 40) -> None:
    """Requests go on, none fails, and they lose the budget of a few look-ups in all."""
    began = time.monotonic()
    answers = [await fresh(gateway) for _ in range(requests)]
    took_s = time.monotonic() - began
    assert {answer.status for answer in answers} == {200}
    assert {state(answer) for answer in answers} == {"miss"}
    # Each would have lost the budget, had it gone on asking.
    assert took_s < requests * BUDGET_S / 2 + FAILURES * BUDGET_S
    assert (await ask(gateway.url, "/readyz")).status == 200
    assert logged(gateway, GOES_ON) == 1


@pytest.mark.fault("F6")
async def test_redis_is_killed_and_comes_back() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)
            redis.kill()
            await in_trouble(gateway)
            redis.start()
            await eventually(lambda: logged(gateway, HEALED) == 1, within=15)
            await is_kept(gateway)
            assert logged(gateway, GOES_ON) == 1


@pytest.mark.fault("F6")
async def test_redis_is_frozen_with_its_socket_open() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)
            redis.freeze()
            await in_trouble(gateway)
            redis.thaw()
            await eventually(lambda: logged(gateway, HEALED) == 1, within=15)
            await is_kept(gateway)


@pytest.mark.alone
@pytest.mark.fault("F6")
async def test_a_crowd_that_waits_for_a_frozen_redis_loses_the_budget_once() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)
            redis.freeze()
            began = time.monotonic()
            answers = (await many(60, lambda _: fresh(gateway))).all()
            assert {answer.status for answer in answers} == {200}
            assert time.monotonic() - began < 60 * BUDGET_S / 2
            redis.thaw()


@pytest.mark.fault("F6")
async def test_redis_was_never_there() -> None:
    async with through("redis://127.0.0.1:9/0") as (gateway, _):
        await in_trouble(gateway)


@pytest.mark.fault("F6")
async def test_redis_refuses_the_password() -> None:
    with valkey(password="secret") as redis:
        wrong = redis.url.replace("secret", "wrong-password")
        async with through(wrong) as (gateway, _):
            await in_trouble(gateway)
            assert not logged(gateway, "wrong-password")
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)


@pytest.mark.fault("F6")
async def test_redis_is_a_replica_that_only_reads() -> None:
    with valkey() as redis, valkey() as primary:
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)
            control: Redis = Redis.from_url(redis.url)
            await control.replicaof("127.0.0.1", str(primary.server.port))  # type: ignore[no-untyped-call]
            await _refused(gateway)
            await control.replicaof("NO", "ONE")  # type: ignore[no-untyped-call]
            await control.aclose()
            await _taken_again(gateway)


@pytest.mark.fault("F6")
async def test_redis_is_full() -> None:
    with valkey(maxmemory_policy="noeviction") as redis:
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)
            control: Redis = Redis.from_url(redis.url)
            await control.config_set("maxmemory", "1")
            await _refused(gateway)
            assert state(await warm(gateway)) == "hit"  # it can still be read
            await control.config_set("maxmemory", "0")
            await control.aclose()
            await _taken_again(gateway)


async def _refused(gateway: Running) -> None:
    answers = [await fresh(gateway) for _ in range(20)]
    assert {answer.status for answer in answers} == {200}
    await eventually(lambda: logged(gateway, "Answers are not kept in Redis") == 1)
    assert logged(gateway, GOES_ON) == 0


async def _taken_again(gateway: Running) -> None:
    async def again() -> bool:
        await fresh(gateway)
        return logged(gateway, "Answers are kept in Redis again") == 1

    await eventually(again, within=15)
    assert logged(gateway, "Answers are not kept in Redis") == 1


@pytest.mark.fault("F6")
async def test_redis_is_slow_by_two_seconds() -> None:
    with valkey() as redis:
        async with slowly(redis) as slow:
            url = f"redis://127.0.0.1:{slow.port}/0"
            async with through(url) as (gateway, _):
                await warm(gateway)
                await is_kept(gateway)
                slow.delay_s = 2.0
                await in_trouble(gateway)
                slow.delay_s = 0.0
                await eventually(lambda: logged(gateway, HEALED) == 1, within=15)
                await is_kept(gateway)


async def test_two_gateways_share_answers_through_redis() -> None:
    with valkey() as redis:
        async with through(redis.url, "tiered") as (one, fake), through(redis.url, "tiered") as (other, _):
            first = await warm(one)
            control: Redis = Redis.from_url(redis.url)
            await eventually(control.dbsize)
            second = await warm(other)
            assert (state(first), state(second)) == ("miss", "hit")
            assert first.body == second.body
            assert fake.stats.requests[COMPLETIONS] == 1
            ttl = await control.pttl((await control.keys(PREFIX + b"*"))[0])
            assert 3_590_000 < ttl <= 3_600_000
            # What came from Redis is in memory now.
            await control.flushall()
            await control.aclose()
            assert state(await warm(other)) == "hit"


async def test_look_ups_that_wait_at_the_same_time_travel_together() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, _):
            await warm(gateway)
            await is_kept(gateway)
            control: Redis = Redis.from_url(redis.url)
            await control.config_resetstat()
            await many(64, lambda _: fresh(gateway))
            stats = await control.info("commandstats")
            await control.aclose()
            assert 1 <= stats["cmdstat_mget"]["calls"] < 64


async def test_fifty_equal_questions_cost_redis_one_look_up_and_the_engine_one_call() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, fake):
            fake.behave(Behaviour(version="v1", delay_headers_s=0.2))
            answers = (await many(50, lambda _: warm(gateway))).all()
            assert {answer.status for answer in answers} == {200}
            assert fake.stats.requests[COMPLETIONS] == 1
            assert gateway.outcomes == {Outcome.OK: 50}


async def test_a_client_that_leaves_while_redis_is_asked_costs_nothing() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, fake):
            await warm(gateway)
            await is_kept(gateway)
            asked = fake.stats.requests[COMPLETIONS]
            redis.freeze()
            task = asyncio.get_running_loop().create_task(fresh(gateway), name="leaves")
            await eventually(lambda: gateway.service.live)
            task.cancel()
            await eventually(lambda: gateway.outcomes[Outcome.CLIENT_GONE] == 1, within=BUDGET_S * 4)
            redis.thaw()
            await is_kept(gateway)
            assert fake.stats.requests[COMPLETIONS] == asked


async def test_a_value_that_somebody_else_wrote_is_a_miss() -> None:
    with valkey() as redis:
        async with through(redis.url) as (gateway, fake):
            await warm(gateway)
            await is_kept(gateway)
            control: Redis = Redis.from_url(redis.url)
            for name in await control.keys("*"):
                await control.set(name, b"\x00rubbish")
            await control.aclose()
            assert state(await warm(gateway)) == "miss"
            assert fake.stats.requests[COMPLETIONS] == 2


def test_a_server_keeps_its_port(tmp_path: object) -> None:
    """Of the driver: or a gateway could never find it again."""
    with valkey() as redis:
        before: Valkey = redis
        url = before.url
        redis.kill()
        redis.start()
        assert redis.url == url


async def test_monitoring_sees_that_redis_is_away_though_nobody_asks() -> None:
    with valkey() as server:
        async with through(server.url) as (gateway, _):
            await is_kept(gateway)
            server.kill()
            await in_trouble(gateway)
            told = await gateway.metric("changeover_cache_events_total", event="error")

            async def goes_on_counting() -> bool:
                return await gateway.metric("changeover_cache_events_total", event="error") > told + 2

            await eventually(goes_on_counting, within=30, what="failed attempts are counted")
            server.start()
