"""`changeover cache` on a real Redis and in front of a gateway."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.flow.cache.redis_client import PREFIX
from tests.drivers.valkey import valkey
from tests.gateway.cli.conftest import Run


@pytest.mark.parametrize("command", ["stats", "clear"])
def test_without_redis_it_says_whom_to_ask(run: Run, command: str) -> None:
    ran = run("cache", command)
    assert ran.code == 1
    assert "--url" in ran.err


def test_it_counts_and_clears_what_is_in_redis(run: Run, tmp_path: Path) -> None:
    with valkey() as redis, redis.client() as control:
        control.set("somebody", "else")
        control.set(PREFIX + b"one", "1")
        control.set(PREFIX + b"two", "2")
        options = ("--set", "cache.type=redis", "--set", f"cache.url={redis.url}")
        assert msgspec.json.decode(run("cache", "stats", "--json", *options).out) == {"redis_entries": 2}
        assert run("cache", "clear", *options).out == "redis   2 answers forgotten\n"
        assert run("cache", "stats", *options).out == "redis   0 answers kept\n"
        assert control.keys("*") == [b"somebody"]


def test_a_redis_that_is_not_there_is_named_without_its_password(run: Run) -> None:
    url = "redis://:secret@127.0.0.1:9/0"
    ran = run("cache", "clear", "--set", "cache.type=redis", "--set", f"cache.url={url}")
    assert ran.code == 1
    assert "127.0.0.1:9" in ran.err
    assert "secret" not in ran.err


def test_a_gateway_is_not_asked_without_a_token(run: Run) -> None:
    ran = run("cache", "clear", "--url", "http://127.0.0.1:9")
    assert ran.code == 1
    assert "admin.token" in ran.err


def test_a_gateway_that_is_not_there_is_named(run: Run) -> None:
    ran = run("cache", "stats", "--url", "127.0.0.1:9", "--token", "t")
    assert ran.code == 1
    assert "127.0.0.1:9 cannot be reached" in ran.err
