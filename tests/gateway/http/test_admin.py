"""Operators see and clear the cache; nobody else knows that they could."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour
from gateway.flow.cache.build import SIGNAL
from tests.drivers.raw import ask
from tests.drivers.valkey import valkey
from tests.drivers.waiting import eventually
from tests.gateways import fakes, gateway_to

TOKEN = "let-me-in"
ADMIN = {"token": TOKEN}
KNOWN = [("authorization", f"Bearer {TOKEN}")]
SAME: dict[str, Any] = {"prompt": "Hello", "max_tokens": 2, "temperature": 0}
PATHS = [("GET", "/admin/cache"), ("POST", "/admin/cache/clear")]


@pytest.mark.fault("X1")
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_without_a_configured_token_there_is_no_admin_route(method: str, path: str) -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for headers in ([], KNOWN, [("authorization", "Bearer ")]):
            answer = await ask(gateway.url, path, method=method, headers=headers)
            assert answer.status == 404
            assert msgspec.json.decode(answer.body)["error"]["code"] == "not_found"


@pytest.mark.fault("X1")
@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"],
)
async def test_nobody_gets_in_without_the_token(method: str, path: str, given: str) -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin=ADMIN) as gateway:
        headers = [("authorization", given)] if given else []
        answer = await ask(gateway.url, path, method=method, headers=headers)
        assert answer.status == 401
        assert TOKEN.encode() not in answer.raw


async def test_an_operator_sees_and_clears_the_memory() -> None:
    async with fakes(1, Behaviour(version="v1")) as (fake,), gateway_to(fake, admin=ADMIN) as gateway:
        await ask(gateway.url, "/v1/completions", SAME)
        seen = msgspec.json.decode((await ask(gateway.url, "/admin/cache", headers=KNOWN)).body)
        assert seen["memory_entries"] == 1
        assert seen["memory_bytes"] > 100
        assert (seen["redis_in_use"], seen["redis_entries"]) == (None, None)
        gone = await ask(gateway.url, "/admin/cache/clear", b"", headers=KNOWN)
        assert msgspec.json.decode(gone.body) == seen
        assert await gateway.metric("changeover_cache_entries") == 0
        assert (await ask(gateway.url, "/v1/completions", SAME)).header("x-cache") == "miss"


async def test_other_workers_clear_their_memory_too() -> None:
    async with fakes(1, Behaviour(version="v1")) as (fake,), gateway_to(fake, admin=ADMIN) as gateway:
        await ask(gateway.url, "/v1/completions", SAME)
        signal: Path = gateway.file.parent / "run" / SIGNAL
        signal.touch()  # as another worker does
        cache = gateway.gateway.cache
        assert cache is not None
        await eventually(lambda: cache.entries == 0)
        assert (await ask(gateway.url, "/v1/completions", SAME)).header("x-cache") == "miss"


async def test_clearing_redis_touches_nothing_else_that_it_holds() -> None:
    with valkey() as redis:
        cache = {"type": "tiered", "url": redis.url}
        control = redis.client()
        control.set("somebody", "else")
        async with (
            fakes(1, Behaviour(version="v1")) as (fake,),
            gateway_to(fake, admin=ADMIN, cache=cache) as gateway,
        ):
            for number in range(3):
                await ask(gateway.url, "/v1/completions", {**SAME, "max_tokens": number + 1})
            await eventually(lambda: control.dbsize() == 4)
            gone = msgspec.json.decode(
                (await ask(gateway.url, "/admin/cache/clear", b"", headers=KNOWN)).body
            )
            assert (gone["memory_entries"], gone["redis_in_use"], gone["redis_entries"]) == (3, True, 3)
            assert control.keys("*") == [b"somebody"]
        control.close()


async def test_a_gateway_without_a_cache_says_so() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin=ADMIN, cache={"type": "off"}) as gateway:
        answer = await ask(gateway.url, "/admin/cache", headers=KNOWN)
        assert answer.status == 404
        assert "cache.type" in msgspec.json.decode(answer.body)["error"]["message"]
