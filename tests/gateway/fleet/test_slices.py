"""Engines found through Kubernetes' API: the real client, and a stand-in for the cluster's API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kmock
import pytest
from kubernetes.aio import client

from gateway.fleet.discovery import Names
from gateway.fleet.slices import Slices, addresses
from gateway.settings.tree import Endpoint
from tests.drivers.process import free_port
from tests.drivers.waiting import eventually

SLICES = "/apis/discovery.k8s.io/v1/namespaces/changeover/endpointslices"
ENDPOINT = Endpoint(url="kubernetes://engines.changeover:8000", control_port=9001)


def entry(*found: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": list(found), "conditions": conditions}


def part(name: str, *endpoints: dict[str, Any], kind: str = "IPv4") -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "changeover",
            "labels": {"kubernetes.io/service-name": "engines"},
        },
        "addressType": kind,
        "endpoints": list(endpoints),
    }


def test_only_endpoints_that_may_get_requests_count_and_each_once() -> None:
    slices = [
        part("a", entry("10.0.0.2", ready=True), entry("10.0.0.1"), entry("10.0.0.3", ready=False)),
        part("b", entry("10.0.0.1", ready=True), entry("10.0.0.4", ready=True, terminating=True)),
        part("c", entry("fd00::1", ready=True), kind="IPv6"),
        part("d", entry("engine.example", ready=True), kind="FQDN"),
        {**part("e"), "endpoints": None},
    ]
    assert addresses(slices) == ["10.0.0.1", "10.0.0.2", "fd00::1"]


class Api:
    """The API server, and a client's way to it."""

    def __init__(self, server: kmock.KubernetesEmulator) -> None:
        self.server = server
        self.changes = 0

    async def connect(self) -> client.ApiClient:
        return client.ApiClient(client.Configuration(host=str(self.server.url).rstrip("/")))

    def changed(self) -> None:
        self.changes += 1

    async def is_watched(self) -> None:
        """Return when somebody watches: this server forgets what happened before."""
        await eventually(lambda: len(self.server[kmock.action.WATCH]))

    async def put(self, slice_: dict[str, Any], *, new: bool = True) -> None:
        if new:
            await self.server.post(SLICES, json=slice_)
        else:
            await self.server.patch(f"{SLICES}/{slice_['metadata']['name']}", json=slice_)

    async def drop(self, name: str) -> None:
        await self.server.delete(f"{SLICES}/{name}")


@asynccontextmanager
async def api() -> AsyncIterator[Api]:
    emulator = kmock.KubernetesEmulator()
    async with emulator as server, kmock.Server(emulator):
        yield Api(server)


@asynccontextmanager
async def watched(cluster: Api) -> AsyncIterator[Slices]:
    slices = Slices(cluster.changed, cluster.connect)
    try:
        yield slices
    finally:
        await slices.close()


async def test_what_is_there_is_listed_and_what_changes_is_heard_of() -> None:
    async with api() as cluster:
        await cluster.put(part("a", entry("10.0.0.1", ready=True)))
        async with watched(cluster) as slices:
            assert await slices.look_up("engines.changeover", 8000) == ["10.0.0.1"]
            await cluster.is_watched()
            await cluster.put(part("b", entry("10.0.0.2", ready=True)))

            async def known() -> object:
                return await slices.look_up("engines.changeover", 8000)

            async def both() -> bool:
                return await known() == ["10.0.0.1", "10.0.0.2"]

            await eventually(both)
            assert cluster.changes == 2
            await cluster.drop("a")

            async def second() -> bool:
                return await known() == ["10.0.0.2"]

            await eventually(second)


async def test_members_follow_the_slices_and_know_their_control_ports() -> None:
    async with api() as cluster:
        names = Names([ENDPOINT], watch=lambda changed: Slices(changed, cluster.connect))
        try:
            await cluster.put(part("a", entry("10.0.0.1", ready=True)))
            await names.refresh()
            assert [(str(spec.address), spec.control) for spec in names.members] == [
                ("http://10.0.0.1:8000", "http://10.0.0.1:9001")
            ]
            await names.wait(5)
            await cluster.is_watched()
            await cluster.put(part("b", entry("10.0.0.2", ready=True)))
            await asyncio.wait_for(names.wait(60), 30)
            await names.refresh()
            assert len(names.members) == 2
        finally:
            await names.close()


async def test_an_empty_list_does_not_empty_the_fleet() -> None:
    async with api() as cluster:
        names = Names([ENDPOINT], watch=lambda changed: Slices(changed, cluster.connect))
        try:
            await cluster.put(part("a", entry("10.0.0.1", ready=True)))
            await names.refresh()
            await names.wait(5)
            await cluster.is_watched()
            await cluster.drop("a")
            await asyncio.wait_for(names.wait(60), 30)
            await names.refresh()
            assert len(names.members) == 1, "probing finds out who is dead"
        finally:
            await names.close()


async def test_a_watch_that_is_too_old_begins_anew_with_a_list() -> None:
    gone = b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}\n'
    async with api() as cluster:
        await cluster.put(part("a", entry("10.0.0.1", ready=True)))
        cluster.server[kmock.action.WATCH][:1] << gone
        async with watched(cluster) as slices:
            assert await slices.look_up("engines.changeover", 8000) == ["10.0.0.1"]
            await eventually(lambda: len(cluster.server[kmock.action.LIST]) >= 2)
            await cluster.put(part("b", entry("10.0.0.2", ready=True)))

            async def both() -> bool:
                return len(await slices.look_up("engines.changeover", 8000)) == 2

            await eventually(both)


async def test_while_the_api_is_away_the_error_is_said_and_then_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(Api):
        there = False

        async def connect(self) -> client.ApiClient:
            if not self.there:
                return client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{free_port()}"))
            return await super().connect()

    emulator = kmock.KubernetesEmulator()
    async with emulator as server, kmock.Server(emulator):
        cluster = Away(server)
        await cluster.put(part("a", entry("10.0.0.1", ready=True)))
        names = Names([ENDPOINT], watch=lambda changed: Slices(changed, cluster.connect))
        try:

            async def said() -> bool:
                await names.refresh()
                return "Watching the endpoints of engines.changeover fails" in caplog.text

            await eventually(said)
            assert names.members == []
            cluster.there = True

            async def found() -> bool:
                await names.refresh()
                return len(names.members) == 1

            await eventually(found, within=10)
        finally:
            await names.close()


async def test_forbidden_is_no_reason_to_end(caplog: pytest.LogCaptureFixture) -> None:
    async with api() as cluster:
        cluster.server[kmock.action.LIST][:1] << 403
        await cluster.put(part("a", entry("10.0.0.1", ready=True)))
        async with watched(cluster) as slices:

            async def found() -> bool:
                try:
                    return await slices.look_up("engines.changeover", 8000) == ["10.0.0.1"]
                except OSError:
                    return False

            await eventually(found, within=10)
        assert "403" in caplog.text
