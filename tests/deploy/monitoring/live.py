"""Prometheus at work on real series: a gateway, real engines, a trainer's metrics, node_exporter.

The configuration is the project's; only its intervals are shortened, so that two minutes' windows have
enough scrapes after seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx2

from deploy.stack.layout import PROMETHEUS, write_targets
from deploy.stack.programs import find
from deploy.stack.watching import Watch
from tests.drivers.process import free_port, running
from tests.drivers.waiting import eventually

INTERVALS = ("15s", "2s")
SCRAPES = 5


@asynccontextmanager
async def tcp_to(path: Path) -> AsyncIterator[int]:
    """A TCP port that leads to a Unix socket: Prometheus reads no others."""
    serving: set[asyncio.Task[None]] = set()
    ends: set[asyncio.StreamWriter] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.add(writer)
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()
        ends.discard(writer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        serving.add(current)
        back, there = await asyncio.open_unix_connection(path)
        await asyncio.gather(pass_on(reader, there), pass_on(back, writer))
        serving.discard(current)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in tuple(ends):
            writer.close()
        await asyncio.gather(*serving)


@asynccontextmanager
async def node_exporter() -> AsyncIterator[int]:
    port = free_port()
    command = [find("node_exporter"), f"--web.listen-address=127.0.0.1:{port}"]
    async with running(command, f"http://127.0.0.1:{port}", "/metrics"):
        yield port


@asynccontextmanager
async def prometheus(folder: Path, targets: Mapping[str, Sequence[int]]) -> AsyncIterator[Watch]:
    """From when it has scraped every target a few times. `targets`: ports of this machine by job."""
    port = free_port()
    (folder / "rules").mkdir()
    (folder / "targets").mkdir()
    write_targets(folder / "targets", {**targets, "prometheus": (port,)})
    text = (PROMETHEUS / "prometheus.yml").read_text()
    assert text.count(f"interval: {INTERVALS[0]}") == 2
    text = text.replace(f"interval: {INTERVALS[0]}", f"interval: {INTERVALS[1]}")
    (folder / "prometheus.yml").write_text(text.replace("scrape_timeout: 10s", "scrape_timeout: 2s"))
    for path in (PROMETHEUS / "rules").glob("*.yaml"):
        (folder / "rules" / path.name).write_text(path.read_text())
    command = [
        *(find("prometheus"), f"--config.file={folder / 'prometheus.yml'}"),
        *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(command, f"http://127.0.0.1:{port}", "/-/ready"))
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=30))
        watch = Watch(client, f"http://127.0.0.1:{port}", "")
        wanted = sum(map(len, targets.values())) + 1

        async def scraped() -> bool:
            found = await watch.ask(f"count(sum_over_time(up[5m]) >= {SCRAPES})")
            return bool(found) and float(found[0]["value"][1]) == wanted

        await eventually(scraped, within=60, what=f"{wanted} targets were scraped")
        yield watch
