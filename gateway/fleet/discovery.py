"""Who the members are: from the configuration, from this machine's backends, from a DNS name.

A source gives a complete list of members or fails; a failure, or an empty answer, never empties a set
that worked (probing finds out who is dead). Kubernetes is found through the DNS name of a headless Service.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.fleet.member import Spec
from gateway.settings.tree import Endpoint
from gateway.upstream.address import Address, parse_address

logger = logging.getLogger(__name__)

LOOKUP_TIMEOUT_S = 5.0


def is_name(endpoint: Endpoint) -> bool:
    """Whether the endpoint stands for all addresses of a DNS name."""
    return urlsplit(endpoint.url).scheme == "dns"


def fixed(endpoints: Sequence[Endpoint]) -> list[Spec]:
    """The members that the configuration names itself."""
    return [_spec(endpoint, parse_address(endpoint.url)) for endpoint in endpoints if not is_name(endpoint)]


async def look_up(endpoint: Endpoint) -> list[Spec]:
    """One member for each address of a DNS endpoint, in a stable order. Raises OSError, TimeoutError."""
    address = parse_address(endpoint.url)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LOOKUP_TIMEOUT_S):
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(entry[4][0]) for entry in found})
    return [_spec(endpoint, Address(host=host, port=address.port)) for host in hosts]


class Names:
    """The last good answer for each DNS endpoint."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = [endpoint for endpoint in endpoints if is_name(endpoint)]
        self._known: dict[str, list[Spec]] = {}
        self._failing: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._endpoints)

    async def refresh(self) -> list[Spec]:
        """Look all names up; those that fail keep what they last gave."""
        for endpoint in self._endpoints:
            try:
                specs = await look_up(endpoint)
            except (OSError, TimeoutError) as error:
                self._complain(endpoint.url, str(error) or "timed out")
                continue
            if not specs:
                self._complain(endpoint.url, "no addresses")
                continue
            if endpoint.url in self._failing:
                self._failing.discard(endpoint.url)
                logger.info("Looking up %s works again", endpoint.url)
            self._known[endpoint.url] = specs
        return [spec for specs in self._known.values() for spec in specs]

    def _complain(self, url: str, reason: str) -> None:
        if url not in self._failing:
            self._failing.add(url)
            kept = len(self._known.get(url, ()))
            logger.warning("Looking up %s fails (%s); keeping the %d members known", url, reason, kept)


def _spec(endpoint: Endpoint, address: Address) -> Spec:
    key = endpoint.api_key.get_secret_value() if endpoint.api_key is not None else ""
    name = address.path or address.authority
    return Spec(name=name, address=address, weight=endpoint.weight, api_key=key)
