"""The client for the Redis (or Valkey) that keeps answers: one server, Sentinel or a cluster, by URL.

    redis://user:password@host:port/0      rediss://… (TLS)      unix:///run/redis.sock
    redis+sentinel://host:port,host2:port/master/0      redis+cluster://host:port      rediss+…

Built without the client library's own retries and time limits: `gateway.flow.cache.redis_store` has one
budget for everything, and would rather compute an answer than wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

PREFIX: Final = b"changeover:answer:1:"
"""The number changes with the form of what is kept."""

UNANSWERED: Final = (RedisError, OSError, TimeoutError, RuntimeError)
"""What a command raises that Redis does not answer. uvloop raises a bare RuntimeError where the other side
closed the connection just before something is sent on it."""

_PAGE: Final = 1000


class Remote:
    """The few commands that the cache needs. Raises what redis-py raises."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        self._client: Any = client
        self._cluster = isinstance(client, RedisCluster)

    @classmethod
    def at(cls, url: str) -> Remote:
        """See `connect`."""
        return cls(connect(url))

    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values, in one round trip (in a cluster one for each of its parts)."""
        names = [PREFIX + key for key in keys]
        if self._cluster:
            found: list[bytes | None] = await self._client.mget_nonatomic(names)
        else:
            found = await self._client.mget(names)
        return found

    async def write(self, values: Mapping[bytes, bytes], ttl_s: float) -> None:
        """Keep them for a while, in one round trip. Raises the first failure."""
        pipeline = self._client.pipeline(transaction=False)
        for key, value in values.items():
            pipeline.set(PREFIX + key, value, px=max(1, int(ttl_s * 1000)))
        await pipeline.execute()

    async def ping(self) -> None:
        await self._client.ping()

    async def count(self) -> int:
        """Answers that are kept."""
        return sum([len(page) async for page in self._pages()])

    async def clear(self) -> int:
        """Forget all answers, and nothing else that the server holds. Returns how many there were."""
        cleared = 0
        async for page in self._pages():
            for name in page:  # one by one: in a cluster they are in different parts
                cleared += await self._client.unlink(name)
        return cleared

    async def _pages(self) -> AsyncIterator[list[bytes]]:
        page: list[bytes] = []
        async for name in self._client.scan_iter(match=PREFIX + b"*", count=_PAGE):
            page.append(name)
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    async def close(self) -> None:
        await self._client.aclose()


def connect(url: str) -> Redis | RedisCluster:
    """A client that connects when it is first used. ValueError for a URL that cannot be read."""
    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    if kind == "sentinel":
        return _sentinel(base == "rediss", rest)
    if kind == "cluster":
        return RedisCluster.from_url(f"{base}://{rest}", retry=_never())
    return Redis.from_url(url, retry=_never(), retry_on_error=[])


def _never() -> Retry:
    return Retry(NoBackoff(), 0)


def _sentinel(secure: bool, rest: str) -> Redis:
    """`[user:password@]host:port,host:port/master[/db][?sentinel_password=…]`"""
    login, _, places = rest.rpartition("@")
    hosts, _, path = places.partition("/")
    parts = urlsplit(f"redis://x/{path}")
    master, _, db = parts.path.strip("/").partition("/")
    if not master or not hosts:
        raise ValueError("should be redis+sentinel://host:port,host:port/name-of-the-master/0")
    user, _, password = login.rpartition(":")
    options: dict[str, Any] = {"ssl": True} if secure else {}
    own = parse_qs(parts.query).get("sentinel_password")
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [_address(host) for host in hosts.split(",")],
        sentinel_kwargs={"retry": _never(), **options, **({"password": own[0]} if own else {})},
    )
    client: Redis = sentinel.master_for(
        unquote(master),
        retry=_never(),
        retry_on_error=[],
        db=int(db or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        **options,
    )
    return client


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"redis://{host}")
    return parts.hostname or "127.0.0.1", parts.port or 26379
