"""The cache that the settings ask for."""

from __future__ import annotations

from pathlib import Path
from random import Random

from gateway.flow.cache.cache import Cache
from gateway.flow.cache.memory import Memory
from gateway.flow.cache.redis_client import Remote
from gateway.flow.cache.redis_store import RedisStore
from gateway.observe.labels import OTHER_MODEL, CacheEvent
from gateway.observe.metrics import Metrics
from gateway.settings.tree import Cache as CacheSettings
from gateway.settings.tree import CacheType
from gateway.tasks import TaskOwner

SIGNAL = "cache-cleared"
"""The file in the run directory by which one worker has the others clear their memory."""


def redis_url(settings: CacheSettings) -> str:
    """Where Redis is, by URL."""
    if settings.url is not None:
        return settings.url.get_secret_value()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"redis://{host}:{settings.port}/0"


def build_cache(
    settings: CacheSettings, run_dir: Path, metrics: Metrics, tasks: TaskOwner, random: Random
) -> Cache | None:
    """None: answers are not kept. Redis is connected to when it is first asked."""
    if settings.type is CacheType.OFF:
        return None
    events = metrics.model(OTHER_MODEL).cache  # what concerns no one model
    memory = None
    remote = None
    if settings.type is not CacheType.REDIS:
        memory = Memory(settings.max_bytes, settings.ttl_s)
    if settings.type is not CacheType.MEMORY:
        remote = RedisStore(
            Remote.at(redis_url(settings)),
            timeout_s=settings.timeout_s,
            ttl_s=settings.ttl_s,
            tasks=tasks,
            random=random,
            failed=lambda: events.add(CacheEvent.ERROR),
        )
    return Cache(
        memory,
        remote,
        metrics.cache_bytes,
        metrics.cache_entries,
        run_dir / SIGNAL,
        lambda count: events.add(CacheEvent.EVICT, count),
    )
