"""One engine as the fleet knows it, and the lease by which a request holds a place on it.

`in_flight` and `tokens` change in two places only: when a lease is made and when it is given back. A
lease gives back once, however often it is asked to, so the counts are true by construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.fleet.health import MemberHealth
from gateway.observe.labels import ConnectionState
from gateway.observe.metrics import MemberSeries
from gateway.upstream.address import Address
from gateway.upstream.headers import end_of_head
from gateway.upstream.pool import Pool

UNVERSIONED = "unversioned"
"""The version of an engine that does not say which weights it serves."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What makes a member: found by discovery, compared by value."""

    name: str
    """Metric label; unique within a model."""
    address: Address
    weight: float = 1.0
    api_key: str = field(default="", repr=False)
    control: Path | str | None = None
    """Where its agent listens: a socket on this machine, or a URL. None: it has none."""


class Member:
    """A member of one model's fleet. Satisfies `gateway.routing.contract.Candidate`."""

    __slots__ = (
        "_heads",
        "failures",
        "health",
        "in_flight",
        "last_ok_s",
        "limit",
        "models",
        "name",
        "pool",
        "requests",
        "retired",
        "series",
        "spec",
        "tokens",
        "version",
        "version_mark",
        "weight",
    )

    def __init__(
        self, spec: Spec, health: MemberHealth, pool: Pool, series: MemberSeries, ceiling: int
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.weight = spec.weight
        self.health = health
        self.pool = pool
        self.series = series
        self.version = UNVERSIONED
        self.version_mark = UNVERSIONED.encode()
        """The version as it stands in headers."""
        self.models: tuple[str, ...] = ()
        """Names it answers to, adapters included, as it says itself."""
        self.in_flight = 0
        self.tokens = 0
        self.requests = 0
        """Leases ever made."""
        self.failures = 0
        """Attempts that ended by its fault."""
        self.last_ok_s = 0.0
        """How long its last good answer took."""
        self.retired = False
        """Removed from the fleet; what runs on it may end."""
        self.limit = ceiling
        """Most requests it may have now."""
        self._heads: dict[bytes, bytes] = {}

    def __repr__(self) -> str:
        return (
            f"<Member {self.name} {self.health.state.value} version={self.version} "
            f"in_flight={self.in_flight} tokens={self.tokens}>"
        )

    def head(self, path: bytes, block: bytes, length: int) -> bytes:
        """A request's head. `path` is one of the route table's, `block` the header lines to pass on."""
        start = self._heads.get(path)
        if start is None:
            lines = b"".join(b"%b: %b\r\n" % header for header in self.authorization)
            authority = self.spec.address.authority.encode()
            start = self._heads[path] = b"POST %b HTTP/1.1\r\nhost: %b\r\n%b" % (path, authority, lines)
        return start + block + end_of_head(length)

    @property
    def authorization(self) -> list[tuple[bytes, bytes]]:
        """The header that the engine itself asks for, if any."""
        key = self.spec.api_key
        return [(b"authorization", b"Bearer " + key.encode())] if key else []

    def set_limit(self, ceiling: int, *, last_resort: bool) -> None:
        """Once at each transition: on trial it may have one request more than it has now."""
        self.limit = ceiling if last_resort else self.health.allowance(ceiling, self.in_flight)

    def count_connections(self) -> None:
        """Show the pool's connections in the metrics."""
        if not self.retired:
            idle = self.pool.idle_count
            self.series.connections.set(ConnectionState.IDLE, idle)
            self.series.connections.set(ConnectionState.BUSY, self.pool.open_count - idle)

    def retire(self) -> None:
        """It has left the fleet: its connections and series go when the last request on it has ended."""
        self.retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.retired and self.in_flight == 0:
            self.pool.close()
            self.series.close()

    def lease(self, tokens: int) -> Lease:
        """Take a place. The caller has checked that there is one."""
        self.in_flight += 1
        self.tokens += tokens
        self.requests += 1
        return Lease(self, tokens, self.version_mark)

    def show(self) -> None:
        """Show the leases in the metrics: some times a second, not for each of them."""
        if self.in_flight or not self.retired:
            self.series.in_flight.set(self.in_flight)


class Lease(msgspec.Struct, eq=False):
    """One request's place on one member, from `Member.lease` until `release`."""

    member: Member
    _tokens: int
    mark: bytes
    """The weights that the member was known to serve when it was chosen, as they stand in headers."""
    _open: bool = True

    def __repr__(self) -> str:
        return f"<Lease {self.member.name} {'open' if self._open else 'released'}>"

    def release(self) -> None:
        """Give the place back. Idempotent."""
        if not self._open:
            return
        self._open = False
        member = self.member
        member.in_flight -= 1
        member.tokens -= self._tokens
        if member.retired:
            member._close_if_idle()
