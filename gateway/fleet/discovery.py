"""Who the members are: from the configuration, from this machine's backends, from a name.

A source gives a complete list of members or fails; a failure, or an empty answer, never empties a set
that worked (probing finds out who is dead). A name is one of DNS, such as that of a headless Service of
Kubernetes, or a Service whose EndpointSlices are watched (`gateway.fleet.slices`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from gateway.fleet.member import Spec
from gateway.settings.tree import Endpoint
from gateway.upstream.address import Address, parse_address

logger = logging.getLogger(__name__)

LOOKUP_TIMEOUT_S = 5.0

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""Every address of a host, for connections to this port. Raises OSError or UnicodeError where it fails."""


async def system_look_up(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Watching(Protocol):
    """Names that are watched rather than asked for again and again."""

    async def look_up(self, host: str, port: int) -> Sequence[str]: ...

    async def close(self) -> None: ...


Watch = Callable[[Callable[[], None]], Watching]
"""Begins to watch; what it is given is called at every change. Raises OSError."""


def watch_kubernetes(on_change: Callable[[], None]) -> Watching:
    """EndpointSlices of the cluster that this process runs in."""
    try:
        from gateway.fleet.slices import Slices  # an extra that only clusters need
    except ImportError as error:
        raise OSError(f"needs `pip install 'changeover[kubernetes]'`: {error}") from error
    return Slices(on_change)


def is_name(endpoint: Endpoint) -> bool:
    """Whether the endpoint stands for all addresses of a name."""
    return urlsplit(endpoint.url).scheme in ("dns", "kubernetes")


def fixed(endpoints: Sequence[Endpoint]) -> list[Spec]:
    """The members that the configuration names itself."""
    return [_spec(endpoint, parse_address(endpoint.url)) for endpoint in endpoints if not is_name(endpoint)]


class Names:
    """The last good answer for each name among the endpoints. `close` once."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        look_up: LookUp = system_look_up,
        watch: Watch = watch_kubernetes,
    ) -> None:
        self._look_up = look_up
        self._watch = watch
        self._watching: Watching | None = None
        self._changed = asyncio.Event()
        self._endpoints: list[Endpoint] = []
        self._known: dict[str, Sequence[str]] = {}
        self._failing: set[str] = set()
        self.follow(endpoints)

    def __bool__(self) -> bool:
        return bool(self._endpoints)

    def follow(self, endpoints: Sequence[Endpoint]) -> None:
        """Other endpoints from now on. What is known of those that stay is kept."""
        self._endpoints = [endpoint for endpoint in endpoints if is_name(endpoint)]
        urls = {endpoint.url for endpoint in self._endpoints}
        self._known = {url: hosts for url, hosts in self._known.items() if url in urls}
        self._failing &= urls

    @property
    def members(self) -> list[Spec]:
        """Those that the last good answers name: one for each address, in a stable order."""
        return [
            _spec(endpoint, Address(host=host, port=parse_address(endpoint.url).port))
            for endpoint in self._endpoints
            for host in self._known.get(endpoint.url, ())
        ]

    async def refresh(self) -> None:
        """Look all names up at once; those that fail keep what they last gave."""
        await asyncio.gather(*(self._refresh(endpoint.url) for endpoint in self._endpoints))

    async def wait(self, limit_s: float) -> None:
        """Until something that is watched has changed, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()

    async def close(self) -> None:
        if self._watching is not None:
            await self._watching.close()

    async def _ask(self, url: str) -> Sequence[str]:
        address = parse_address(url)
        if urlsplit(url).scheme == "dns":
            return await self._look_up(address.host, address.port)
        if self._watching is None:
            self._watching = self._watch(self._changed.set)
        return await self._watching.look_up(address.host, address.port)

    async def _refresh(self, url: str) -> None:
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                hosts = sorted(set(await self._ask(url)))
        except (OSError, TimeoutError, UnicodeError) as error:
            self._complain(url, str(error) or "timed out")
            return
        if not hosts:
            self._complain(url, "no addresses")
            return
        if url in self._failing:
            self._failing.discard(url)
            logger.info("Looking up %s works again", url)
        self._known[url] = hosts

    def _complain(self, url: str, reason: str) -> None:
        if url not in self._failing:
            self._failing.add(url)
            kept = len(self._known.get(url, ()))
            logger.warning("Looking up %s fails (%s); keeping the %d members known", url, reason, kept)


def _spec(endpoint: Endpoint, address: Address) -> Spec:
    key = endpoint.api_key.get_secret_value() if endpoint.api_key is not None else ""
    name = address.path or address.authority
    control = endpoint.control
    if control is None and endpoint.control_port is not None:
        control = f"http://{Address(host=address.host, port=endpoint.control_port).authority}"
    return Spec(name=name, address=address, weight=endpoint.weight, api_key=key, control=control)
