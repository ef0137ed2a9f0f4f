"""Gateways and engines are killed, restarted and moved behind nginx, and its users should not notice."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from backends.contract import GUARD_PATH
from backends.fake import Behaviour, Fake
from tests.deploy.nginx.users import users
from tests.drivers.names import names
from tests.drivers.nginx import edge, entries, servers
from tests.drivers.process import Running, free_port, running_gateway
from tests.drivers.raw import ask
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import fakes, gateway_to, settings_for

BRISK = Behaviour(tokens_per_s=300)
SLOW = Behaviour(tokens=12, tokens_per_s=10)
FREE = {"EDGE_RATE": "100000r/s", "EDGE_ADDRESS_RATE": "100000r/s"}
"""No limits: all users of a test share one address."""
HEALTH = {"interval_s": 0.05, "healthy_after": 2, "breaker_open_s": 0.1}


def at(host: str, port: int, *urls: str, **sections: Any) -> dict[str, Any]:
    """Settings of a gateway that listens there."""
    server = {"host": host, "port": port, "settle_s": 0.5, "drain_s": 10, **sections.pop("server", {})}
    return settings_for(*urls, server=server, health=HEALTH, **sections)


@asynccontextmanager
async def pair(*fakes: Fake) -> AsyncIterator[tuple[Running, Running]]:
    urls = [fake.url for fake in fakes]
    async with (
        running_gateway(at("127.0.0.1", free_port(), *urls)) as one,
        running_gateway(at("127.0.0.1", free_port(), *urls)) as two,
    ):
        yield one, two


async def answers_users(gateway: Running) -> bool:
    """Whether nginx has begun to send requests to it: what `minReadySeconds` gives it time for."""
    page = (await ask(gateway.url, "/metrics")).body.decode()
    return (
        re.search(r'^changeover_requests_total\{[^}]*outcome="ok"[^}]*\} [1-9]', page, re.MULTILINE)
        is not None
    )


async def test_a_killed_gateway_costs_only_what_it_was_answering() -> None:
    async with (
        fakes(2, BRISK) as engines,
        pair(*engines) as (doomed, other),
        edge([doomed.url, other.url], FREE) as front,
        users(front.url, 8) as served,
    ):
        await eventually(lambda: served.whole > 60, within=30)
        doomed.process.kill()
        await doomed.ended()
        before = served.whole
        await eventually(lambda: served.whole > before + 100, within=30)
    # What each user had asked just then, and once more where nginx had not yet heard of the end.
    assert served.wrong.total() <= 2 * 8, served.wrong


@pytest.mark.fault("I1")
async def test_gateways_are_restarted_one_after_the_other_and_nobody_notices() -> None:
    ports = free_port(), free_port()
    async with fakes(2, BRISK) as (a, b), AsyncExitStack() as stack:

        async def start(port: int) -> Running:
            return await stack.enter_async_context(running_gateway(at("127.0.0.1", port, a.url, b.url)))

        first, second = await start(ports[0]), await start(ports[1])
        front = await stack.enter_async_context(
            edge(values={**FREE, "EDGE_GATEWAYS": servers([first.url, second.url], fail_timeout_s=1)})
        )
        async with users(front.url, 8) as served:
            await eventually(lambda: served.whole > 60, within=30)
            for leaving, port in ((first, ports[0]), (second, ports[1])):
                leaving.signal(signal.SIGTERM)
                assert await leaving.ended() == 0
                successor = await start(port)
                await eventually(partial(answers_users, successor), within=30)
        assert served.wrong == {}


@pytest.mark.fault("I1")
async def test_a_stream_through_nginx_outlives_its_gateways_sigterm() -> None:
    async with (
        fakes(1, SLOW) as (engine,),
        pair(engine) as (leaving, other),
        edge([leaving.url]) as front,
        asyncio.TaskGroup() as clients,
    ):
        stream = clients.create_task(record(front.url, "/predict", {"prompt": "x", "stream": True}))
        await eventually(lambda: engine.stats.in_flight == 1)
        leaving.signal(signal.SIGTERM)
        assert (await ask(front.url, "/predict", {"prompt": "late", "max_tokens": 1})).status == 200
        got = await stream
        assert got.done
        assert await leaving.ended() == 0
        assert other.alive


async def test_readiness_asks_the_next_gateway_while_one_leaves() -> None:
    async with (
        fakes(1) as (engine,),
        running_gateway(at("127.0.0.1", free_port(), engine.url, server={"settle_s": 30})) as leaving,
        running_gateway(at("127.0.0.1", free_port(), engine.url)) as other,
        edge([leaving.url, other.url]) as front,
    ):
        leaving.signal(signal.SIGTERM)

        async def left() -> bool:
            return (await ask(leaving.url, "/readyz")).status == 503

        await eventually(left)
        assert [(await ask(front.url, "/readyz")).status for _ in range(8)] == [200] * 8
        leaving.signal(signal.SIGTERM)


@pytest.mark.fault("B9")
async def test_engines_are_restarted_one_after_the_other_and_nobody_at_the_edge_notices() -> None:
    async with (
        fakes(3, BRISK) as engines,
        pair(*engines) as (one, two),
        edge([one.url, two.url], FREE) as front,
        users(front.url, 8) as served,
    ):
        for engine in engines:
            await ask(engine.url, GUARD_PATH, {"draining": True})
            await eventually(lambda engine=engine: engine.stats.in_flight == 0)  # type: ignore[misc]
            await engine.retire()
            engine.engine.draining = False
            await engine.start_again()
            before = served.whole
            await eventually(lambda before=before: served.whole > before + 60, within=30)  # type: ignore[misc]
    assert served.wrong == {}


async def test_a_gateway_that_moves_is_found_without_a_reload() -> None:
    """Its name gets another address, as when a container is made anew."""
    port = free_port()
    async with fakes(1) as (engine,), names(gateway=["127.0.0.2"]) as known:
        values = {
            "EDGE_GATEWAYS": f"server gateway:{port} resolve max_fails=3 fail_timeout=10s;",
            "NGINX_LOCAL_RESOLVERS": f"127.0.0.1:{known.port}",
        }
        async with edge(values=values) as front:

            async def served() -> bool:
                return (await ask(front.url, "/predict", {"prompt": "x"})).status == 200

            async with running_gateway(at("127.0.0.2", port, engine.url)):
                await eventually(served, within=10, what="the name is resolved")
            known.addresses["gateway"] = ["127.0.0.3"]
            async with running_gateway(at("127.0.0.3", port, engine.url)):
                await eventually(served, within=15, what="its new address is known")


async def test_replicas_behind_one_name_all_get_their_share() -> None:
    port = free_port()
    async with fakes(1) as (engine,), names(gateway=["127.0.0.2", "127.0.0.3"]) as known:
        values = {
            "EDGE_GATEWAYS": f"server gateway:{port} resolve max_fails=3 fail_timeout=10s;",
            "NGINX_LOCAL_RESOLVERS": f"127.0.0.1:{known.port}",
        }
        async with (
            running_gateway(at("127.0.0.2", port, engine.url)),
            running_gateway(at("127.0.0.3", port, engine.url)),
            edge(values=values) as front,
        ):

            async def both() -> bool:
                await ask(front.url, "/predict", {"prompt": "x"})
                used = {str(entry["gateway"]) for entry in entries(front) if entry["status"] == 200}
                return {f"127.0.0.2:{port}", f"127.0.0.3:{port}"} <= used

            await eventually(both, within=10)


@pytest.mark.fault("I2")
async def test_a_reload_of_nginx_and_one_of_the_gateway_lose_no_stream() -> None:
    async with fakes(2, SLOW) as (a, b), gateway_to(a, b) as gateway, edge([gateway.url]) as front:
        async with asyncio.TaskGroup() as clients:
            streams = [
                clients.create_task(
                    record(front.url, "/v1/completions", {"prompt": f"{number}", "stream": True})
                )
                for number in range(30)
            ]
            await eventually(lambda: sum(member.in_flight for member in gateway.members) == 30)
            front.signal(signal.SIGHUP)
            gateway.file.write_bytes(b"limits: {max_in_flight: -1}")
            gateway.gateway.reload_now()
            await gateway.reconfigure(settings_for(a.url, b.url, limits={"max_queued": 7}))
            assert (await ask(front.url, "/predict", {"prompt": "x", "max_tokens": 1})).status == 200
        assert all(stream.result().done for stream in streams)
        assert gateway.service.limits.max_queued == 7


async def test_a_post_that_a_gateway_may_have_begun_is_not_sent_again() -> None:
    """The first gateway reads the request and closes without an answer."""
    taken: list[bytes] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.read(65_536))
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with edge([f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}"]) as front:
            response = await ask(front.url, "/predict", {"prompt": "x"})
            assert response.status == 502
            assert len(taken) == 1
            assert (await ask(front.url, "/readyz")).status == 502
            assert len(taken) == 3, "what only asks may be asked again"
