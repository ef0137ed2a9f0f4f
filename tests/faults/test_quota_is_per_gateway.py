"""A client gets its quota once for each gateway process, instead of once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.drivers.raw import Response, ask
from tests.drivers.valkey import valkey
from tests.gateways import Running, fakes, gateway_to

KEY = "a-key-of-the-tests"


def shared(url: str, **limits: int) -> dict[str, Any]:
    """Settings of a gateway whose key has limits that are counted in Redis."""
    key = {"name": "tenant", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), **limits}
    return {"auth": {"keys": [key], "quotas": "redis"}, "cache": {"url": url, "timeout_s": 1}}


@asynccontextmanager
async def two_gateways(settings: dict[str, Any]) -> AsyncIterator[tuple[Running, Running]]:
    async with fakes(1) as (fake,), gateway_to(fake, **settings) as a, gateway_to(fake, **settings) as b:
        yield a, b


async def post(gateway: Running, max_tokens: int = 4) -> Response:
    body = {"prompt": "Hello", "max_tokens": max_tokens}
    return await ask(gateway.url, "/predict", body, headers=[("authorization", f"Bearer {KEY}")])


async def test_two_gateways_count_one_keys_requests_together() -> None:
    with valkey() as redis:
        settings = shared(redis.url, requests_per_minute=2)
        async with (
            fakes(1) as (fake,),
            gateway_to(fake, **settings) as one,
            gateway_to(fake, **settings) as two,
        ):
            assert (await post(one)).status == 200
            assert (await post(two)).status == 200
            refused = await post(one)

    assert refused.status == 429
    assert 1 <= int(refused.header("retry-after")) <= 60


async def test_tokens_that_were_not_used_are_given_back_for_all() -> None:
    with valkey() as redis:
        settings = shared(redis.url, tokens_per_minute=1000)
        async with (
            fakes(1) as (fake,),
            gateway_to(fake, **settings) as one,
            gateway_to(fake, **settings) as two,
        ):
            for gateway in (one, two, one, two, one, two):
                assert (await post(gateway, max_tokens=16)).status == 200


async def test_without_redis_each_gateway_counts_for_itself_and_nobody_fails() -> None:
    with valkey() as redis:
        settings = shared(redis.url, requests_per_minute=2)
        async with (
            fakes(1) as (fake,),
            gateway_to(fake, **settings) as one,
            gateway_to(fake, **settings) as two,
        ):
            redis.kill()
            answers = [await post(gateway) for gateway in (one, two, one, two, one)]
            redis.start()

    assert [answer.status for answer in answers] == [200, 200, 200, 200, 429]
