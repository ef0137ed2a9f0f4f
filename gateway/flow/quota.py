"""What each API key may use: requests and tokens a minute, requests at a time.

Token buckets, one pair for each configured key, so their number is that of the keys. A bucket holds one
minute's worth: a key may use it at once, and then gets it back evenly. Tokens are taken by estimate and
settled when the answer's usage is known. A request that asks for more than a whole bucket passes when
the bucket is full, and leaves it in debt. Pure; `gateway.flow.quota_redis` counts over several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Protocol

from gateway.settings.tree import Key


class Limit(StrEnum):
    """Which limit of a key was met."""

    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"
    IN_FLIGHT = "max_in_flight"


IN_FLIGHT_RETRY_S = 1
"""When a request in flight will end is not known."""


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A refusal: 429. The same request passes after `retry_after_s`, if the key asks for nothing else."""

    limit: Limit
    retry_after_s: int


class Bucket:
    """Up to `size` units, `size / 60` more each second; below 0 after a debt."""

    __slots__ = ("_at", "_level", "size")

    def __init__(self, size: float, now: float) -> None:
        self.size = size
        self._level = size
        self._at = now

    def level(self, now: float) -> float:
        """What it holds now."""
        if now > self._at:
            self._level = min(self.size, self._level + (now - self._at) * self.size / 60)
            self._at = now
        return self._level

    def lacks_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken; 0 if it may be now."""
        return max(0.0, (min(amount, self.size) - self.level(now)) * 60 / self.size)

    def take(self, amount: float, now: float) -> None:
        """Take it, whatever is left; a negative amount gives back, up to the size."""
        self._level = min(self.size, self.level(now) - amount)

    def resize(self, size: float, now: float) -> None:
        """Keep what was used of it, not what is left."""
        self._level = size - (self.size - self.level(now))
        self.size = size


class Account:
    """One key's buckets and its count of requests in flight."""

    __slots__ = ("in_flight", "max_in_flight", "requests", "tokens")

    def __init__(self, key: Key, now: float) -> None:
        self.in_flight = 0
        self.max_in_flight: int | None = None
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.configure(key, now)

    def configure(self, key: Key, now: float) -> None:
        """Take over the key's limits; what was used stays used."""
        self.max_in_flight = key.max_in_flight
        self.requests = _resized(self.requests, key.requests_per_minute, now)
        self.tokens = _resized(self.tokens, key.tokens_per_minute, now)

    def check(self, tokens: int, now: float) -> OverQuota | None:
        if self.max_in_flight is not None and self.in_flight >= self.max_in_flight:
            return OverQuota(Limit.IN_FLIGHT, IN_FLIGHT_RETRY_S)
        if self.requests is not None and (lacks_s := self.requests.lacks_s(1, now)) > 0:
            return OverQuota(Limit.REQUESTS, ceil(lacks_s))
        if self.tokens is not None and (lacks_s := self.tokens.lacks_s(tokens, now)) > 0:
            return OverQuota(Limit.TOKENS, ceil(lacks_s))
        return None


class Grant:
    """What one request took from its key; given back once, however often it is asked to."""

    __slots__ = ("_account", "_open", "_tokens", "settle")

    def __init__(self, account: Account, tokens: int, now: float) -> None:
        self._account = account
        self._tokens = tokens
        self._open = True
        self.settle: Callable[[int, float], None] | None = None
        """Also told, once, how many tokens were really used, where that is known; and when."""
        account.in_flight += 1
        if account.requests is not None:
            account.requests.take(1, now)
        if account.tokens is not None:
            account.tokens.take(tokens, now)

    def close(self, now: float, used: int | None = None) -> None:
        """The request has ended. `used`: tokens it really took; None: unknown, the estimate stands."""
        if not self._open:
            return
        self._open = False
        self._account.in_flight -= 1
        if used is not None and self.settle is not None:
            self.settle(used, now)
        if used is not None and self._account.tokens is not None:
            self._account.tokens.take(used - self._tokens, now)

    def cancel(self, now: float) -> None:
        """The request never reached an engine: it used no tokens, and does not count as a request."""
        if self._open and self._account.requests is not None:
            self._account.requests.take(-1, now)
        self.close(now, 0)


class Quota(Protocol):
    """What the flow asks of a quota that needs no waiting."""

    def take(self, key: str, tokens: int, now: float) -> Grant | OverQuota:
        """Take what one request of the key named `key` needs, or nothing at all."""


class LocalQuota:
    """Counts in this process: with several workers, each key has its limits in each of them."""

    def __init__(self, keys: Iterable[Key], now: float) -> None:
        self._accounts: dict[str, Account] = {}
        self.configure(keys, now)

    def configure(self, keys: Iterable[Key], now: float) -> None:
        """Replace the keys; one that stays keeps its account. Requests in flight give back to theirs."""
        known = self._accounts
        self._accounts = {}
        for key in keys:
            account = known.get(key.name) or Account(key, now)
            account.configure(key, now)
            self._accounts[key.name] = account

    def check(self, key: str, tokens: int, now: float) -> OverQuota | None:
        """Whether the request would be refused; takes nothing."""
        return self._accounts[key].check(tokens, now)

    def take(self, key: str, tokens: int, now: float) -> Grant | OverQuota:
        """See `Quota`. Raises KeyError for a key that is not configured."""
        account = self._accounts[key]
        return account.check(tokens, now) or Grant(account, tokens, now)


def _resized(bucket: Bucket | None, size: int | None, now: float) -> Bucket | None:
    if size is None:
        return None
    if bucket is None:
        return Bucket(size, now)
    if bucket.size != size:
        bucket.resize(size, now)
    return bucket
