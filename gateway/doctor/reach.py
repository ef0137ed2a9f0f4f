"""Whether the store and Redis can be reached, and how far their clocks are away. Blocking."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

from redis.exceptions import RedisError

from checkpoints.errors import CheckpointError
from checkpoints.store.open import open_files
from gateway.doctor import rules
from gateway.doctor.finding import Finding, error, ok
from gateway.flow.cache.redis_client import connect

_REDIS_S = 5.0


def store(url: str) -> list[Finding]:
    """Make a small file there, twice, and remove it: the second time it must be refused."""
    topic = f"store {url}"
    path = f".changeover-doctor-{uuid.uuid4().hex}"
    try:
        files = open_files(url, "")
        first = files.create(path, b"1")
        second = files.create(path, b"2")
        read = files.read(path)
        skew = _folder_skew(files.local(path))
        files.remove(path)
    except (CheckpointError, OSError, ModuleNotFoundError) as failure:
        return [
            error(topic, str(failure), "check the URL, its credentials and the network; then run this again")
        ]
    if not first or second or read != b"1":
        text = "does not refuse to create what exists already: publishers would write over each other"
        return [error(topic, text, "use a store with conditional puts, or a folder with hard links")]
    return [ok(topic, "can be read and written"), *rules.clock(topic, skew)]


def _folder_skew(path: Path | None) -> float | None:
    """A file server stamps files by its own clock."""
    if path is None:
        return None
    return path.stat().st_mtime - time.time_ns() / 1e9


def redis(url: str) -> list[Finding]:
    """Ask it for the time."""
    shown = url.rpartition("@")[2] or url
    topic = f"Redis {shown.removeprefix('redis://')}"
    try:
        skew = asyncio.run(_redis_skew(url))
    except (RedisError, OSError, TimeoutError) as failure:
        text = str(failure) or type(failure).__name__
        return [error(topic, text, "start it, or correct cache.host, cache.port or cache.url")]
    return [ok(topic, "answers"), *rules.clock(topic, skew)]


async def _redis_skew(url: str) -> float:
    client = connect(url)
    try:
        async with asyncio.timeout(_REDIS_S):
            seconds, micros = await client.time()
        return float(seconds) + float(micros) / 1e6 - time.time_ns() / 1e9
    finally:
        await client.aclose()
