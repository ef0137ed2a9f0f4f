"""The gateway is stopped for an update, and its users notice."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from backends.fake import Behaviour, Fake
from tests.drivers.process import Running, running_gateway
from tests.drivers.raw import ask, connected, request
from tests.drivers.sse import Ended, Recorded, record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, fakes, settings_for

STREAM = {"prompt": "x", "stream": True, "max_tokens": 24}
SLOW = Behaviour(tokens_per_s=10)
"""A stream of 24 tokens takes 2.4 s."""


async def _refuses(gateway: Running) -> bool:
    try:
        await ask(gateway.url, "/healthz")
    except OSError:
        return True
    return False


def _settings(url: str, **server: Any) -> dict[str, Any]:
    return settings_for(url, server={"settle_s": 0.6, "drain_s": 20, **server})


@pytest.mark.fault("I1")
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_stream_ends_whole_and_then_the_gateway_ends(workers: int) -> None:
    """SIGTERM: not ready at once, still answering for the settling time, then refusing, then 0."""
    async with (
        fakes(1, SLOW) as (fake,),
        running_gateway(_settings(fake.url, workers=workers)) as gateway,
        asyncio.TaskGroup() as clients,
    ):
        streams = [
            clients.create_task(record(gateway.url, path, {**body, **STREAM}), name=path)
            for path, body in FORMS.values()
            if path != "/v1/chat/completions" and body.get("stream")
        ]
        await eventually(lambda: _in_flight(fake, len(streams)))
        gateway.signal(signal.SIGTERM)

        async def unready() -> bool:
            return (await ask(gateway.url, "/readyz")).status == 503

        await eventually(unready, within=1)
        assert (await ask(gateway.url, "/healthz")).status == 200
        late = await ask(gateway.url, "/predict", {"prompt": "late", "max_tokens": 1})
        assert late.status == 200, "balancers have not heard of it yet"
        await eventually(lambda: _refuses(gateway), within=2)
        assert not all(stream.done() for stream in streams)
        for stream in streams:
            assert (await stream).done
        assert await gateway.ended(within=3) == 0


def _in_flight(fake: Fake, count: int) -> bool:
    return fake.stats.in_flight >= count


@pytest.mark.fault("I1")
async def test_an_idle_gateway_ends_when_it_has_settled() -> None:
    async with (
        fakes(1) as (fake,),
        running_gateway(_settings(fake.url, settle_s=0.1)) as gateway,
        connected(gateway.url) as idle,
    ):
        await idle.send(request("/healthz"))
        await idle.response("GET")
        gateway.signal(signal.SIGTERM)
        assert await gateway.ended(within=3) == 0
        await idle.ends()


@pytest.mark.fault("I1")
async def test_ctrl_c_leaves_out_the_settling_but_not_the_draining() -> None:
    async with (
        fakes(1, SLOW) as (fake,),
        running_gateway(_settings(fake.url, settle_s=30)) as gateway,
        asyncio.TaskGroup() as clients,
    ):
        stream = clients.create_task(record(gateway.url, "/predict", STREAM), name="stream")
        await eventually(lambda: _in_flight(fake, 1))
        gateway.signal(signal.SIGINT)
        await eventually(lambda: _refuses(gateway), within=2)
        assert (await stream).done
        assert await gateway.ended(within=3) == 0


async def _cut_by(gateway: Running, fake: Fake, signals: int) -> tuple[Recorded, int]:
    """The stream that so many SIGTERMs end, and the exit status."""
    async with asyncio.TaskGroup() as clients:
        stream = clients.create_task(
            record(gateway.url, "/v1/completions", {**STREAM, "max_tokens": 1000}), name="stream"
        )
        await eventually(lambda: _in_flight(fake, 1))
        for _ in range(signals):
            gateway.signal(signal.SIGTERM)
            await eventually(lambda: "oing down" in gateway.log or "ending now" in gateway.log)
        status = await gateway.ended(within=5)
    return stream.result(), status


@pytest.mark.fault("I1")
async def test_what_outlasts_the_draining_ends_in_an_error_event() -> None:
    settings = settings_for("", server={"settle_s": 0, "drain_s": 0.3})
    async with fakes(1, SLOW) as (fake,):
        settings["endpoints"] = [fake.url]
        async with running_gateway(settings) as gateway:
            stream, status = await _cut_by(gateway, fake, 1)
            assert status == 0
            assert stream.ended is Ended.WHOLE
            assert [error["code"] for error in stream.errors] == ["shutting_down"]
            assert not stream.done


@pytest.mark.fault("I1")
async def test_a_second_signal_ends_at_once() -> None:
    async with fakes(1, SLOW) as (fake,), running_gateway(_settings(fake.url, settle_s=30)) as gateway:
        stream, status = await _cut_by(gateway, fake, 2)
        assert status == 0
        assert [error["code"] for error in stream.errors] == ["shutting_down"]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.fault("I1")
async def test_workers_do_not_outlive_their_supervisor() -> None:
    settings = {"workers": 2, "settle_s": 0.1}
    async with fakes(1) as (fake,), running_gateway(_settings(fake.url, **settings)) as gateway:
        workers = _children(gateway.process.pid)
        assert len(workers) == 2
        gateway.signal(signal.SIGKILL)
        await gateway.ended()
        await eventually(lambda: not any(map(_lives, workers)), within=5)


@pytest.mark.fault("I1")
async def test_ctrl_c_in_a_terminal_reaches_each_worker_once() -> None:
    """A terminal sends SIGINT to every process of the group: twice would mean "at once"."""
    async with (
        fakes(1, SLOW) as (fake,),
        running_gateway(_settings(fake.url, workers=2)) as gateway,
        asyncio.TaskGroup() as clients,
    ):
        stream = clients.create_task(record(gateway.url, "/predict", STREAM), name="stream")
        await eventually(lambda: _in_flight(fake, 1))
        group = os.getpgid(gateway.process.pid)
        workers = _children(gateway.process.pid)
        assert len(workers) == 2
        for process in (gateway.process.pid, *workers):
            if process == gateway.process.pid or os.getpgid(process) == group:
                os.kill(process, signal.SIGINT)
        assert (await stream).done
        assert await gateway.ended(within=3) == 0
