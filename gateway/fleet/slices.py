"""Who is behind a Service of Kubernetes: its EndpointSlices, listed once and then watched.

A `LookUp` for `kubernetes://service.namespace:port`. The first question starts a watch; from then on every
answer is at hand, and `on_change` is called as soon as it is another one. A watch that ends, or is told that
it is too old (410), begins anew with a list; while the API does not answer, what is known stays.
Needs the extra `kubernetes`; only `gateway.fleet.discovery` uses this, where such an endpoint is configured.

Source: Kubernetes, "EndpointSlices" and "Efficient detection of changes".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes.aio import client, config, watch

from gateway.tasks import TaskOwner

logger = logging.getLogger(__name__)

SERVICE_LABEL = "kubernetes.io/service-name"
WATCH_S = 300
"""After so long a watch is begun anew: one that was lost without a word is missed for no longer."""
PAUSE_S = 1.0
"""Between two lists: an API in trouble is not asked in a loop."""
PAGE_S = 10.0
"""For the list."""

SLICE_MODEL = "V1EndpointSlice"
"""The client's name for what is watched."""

Slice = Mapping[str, Any]
"""An EndpointSlice as JSON."""
Connect = Callable[[], Awaitable[client.ApiClient]]


async def in_cluster() -> client.ApiClient:
    """As the pod's ServiceAccount. Raises ConfigException outside of a cluster."""
    settings = client.Configuration()
    config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    return client.ApiClient(settings)


def addresses(slices: Iterable[Slice]) -> list[str]:
    """The addresses that may get requests, each once, in a stable order.

    Not: those that are not ready (unless the Service publishes them) and those that terminate.
    """
    found: set[str] = set()
    for part in slices:
        if part.get("addressType") not in ("IPv4", "IPv6"):
            continue
        for endpoint in part.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            # An unknown condition counts as ready, as the API says.
            if conditions.get("ready") is not False and not conditions.get("terminating"):
                found.update(endpoint.get("addresses") or ())
    return sorted(found)


@dataclass(slots=True)
class _Watched:
    """One Service."""

    service: str
    namespace: str
    slices: dict[str, Slice] = field(default_factory=dict)
    """By name."""
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: str = ""
    """Why it cannot be followed just now."""


class Slices:
    """Every Service that was asked for. `close` once."""

    def __init__(self, on_change: Callable[[], None], connect: Connect = in_cluster) -> None:
        self._on_change = on_change
        self._connect = connect
        self._watched: dict[str, _Watched] = {}
        self._tasks = TaskOwner("endpoint slices")

    async def look_up(self, host: str, port: int) -> Sequence[str]:
        """The addresses of `service.namespace`. Raises OSError as long as there was no list of them.

        Cancelled, it leaves the watch running.
        """
        known = self._watched.get(host)
        if known is None:
            service, _, namespace = host.partition(".")
            known = self._watched[host] = _Watched(service, namespace)
            self._tasks.start(f"watch {host}", self._follow(known))
        if not known.listed.is_set():
            if known.trouble:
                raise OSError(known.trouble)
            await known.listed.wait()
        return addresses(known.slices.values())

    async def close(self) -> None:
        await self._tasks.close()

    async def _follow(self, known: _Watched) -> None:
        while True:
            try:
                async with await self._connect() as api:
                    await self._list_and_watch(client.DiscoveryV1Api(api), known)
                self._say_well(known)
            except client.ApiException as error:
                if error.status != 410:
                    self._complain(known, f"{error.status} {error.reason}")
            except Exception as error:  # the client raises bare ones where an event is malformed
                self._complain(known, str(error) or type(error).__name__)
            await asyncio.sleep(PAUSE_S)

    async def _list_and_watch(self, api: client.DiscoveryV1Api, known: _Watched) -> None:
        """Returns when the watch has come to its end."""
        asked, label = api.list_namespaced_endpoint_slice, f"{SERVICE_LABEL}={known.service}"
        whole = await asked(known.namespace, label_selector=label, _request_timeout=PAGE_S)
        serialise = api.api_client.sanitize_for_serialization
        listed: list[Slice] = [serialise(part) for part in whole.items]
        known.slices = {part["metadata"]["name"]: part for part in listed}
        known.listed.set()
        self._say_well(known)
        self._on_change()
        since = whole.metadata.resource_version if whole.metadata is not None else None
        async with watch.Watch(SLICE_MODEL).stream(  # type: ignore[no-untyped-call]
            asked,
            known.namespace,
            label_selector=label,
            resource_version=since,
            timeout_seconds=WATCH_S,
            _request_timeout=WATCH_S + PAGE_S,
        ) as events:
            async for event in events:
                self._take(known, event["type"], event["raw_object"])

    def _take(self, known: _Watched, kind: str, part: Slice) -> None:
        name = part["metadata"]["name"]
        before = addresses(known.slices.values())
        if kind == "DELETED":
            known.slices.pop(name, None)
        elif kind in ("ADDED", "MODIFIED"):
            known.slices[name] = part
        if addresses(known.slices.values()) != before:
            self._on_change()

    def _complain(self, known: _Watched, reason: str) -> None:
        if not known.trouble:
            kept = len(addresses(known.slices.values()))
            logger.warning(
                "Watching the endpoints of %s.%s fails (%s); keeping the %d known",
                known.service,
                known.namespace,
                reason,
                kept,
            )
        known.trouble = reason

    def _say_well(self, known: _Watched) -> None:
        if known.trouble:
            logger.info("Watching the endpoints of %s.%s works again", known.service, known.namespace)
        known.trouble = ""
