"""The configuration is replaced while requests run, and they are lost, or half of it takes effect."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour
from tests.drivers.process import free_port, running
from tests.drivers.raw import ask
from tests.drivers.sse import Recorded, record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, QUICK, Running, fakes, gateway_to, serving, settings_for

SHORT = {"prompt": "x", "max_tokens": 1}
STREAM = {"stream": True, "max_tokens": 12}
SLOW = Behaviour(tokens_per_s=10)
STREAMED = [FORMS[name] for name in FORMS if name.endswith("stream")]
RELOADS = "changeover_config_reloads_total"


@asynccontextmanager
async def _streams(gateway: Running, count: int = 30) -> AsyncIterator[None]:
    """So many streams are open within the block, and end whole after it."""
    async with asyncio.TaskGroup() as clients:
        streams = [
            clients.create_task(_stream(gateway.url, number), name=f"stream {number}")
            for number in range(count)
        ]
        await eventually(lambda: sum(member.in_flight for member in gateway.members) > 0)
        yield
    for stream in streams:
        assert stream.result().done
        assert not stream.result().errors


async def _stream(url: str, number: int) -> Recorded:
    path, body = STREAMED[number % len(STREAMED)]
    return await record(url, path, {**body, **STREAM, "seed": number})


@pytest.mark.fault("I2")
async def test_a_broken_configuration_changes_nothing_and_says_so() -> None:
    broken: list[bytes] = [
        b"endpoints: [",
        b"limits: {max_in_flight: -1}",
        b"no_such_key: 1",
        b"endpoints: ['ftp://x']",
        b"\xff\xfe\x00",
    ]
    async with fakes(2, SLOW) as (a, b), gateway_to(a, b) as gateway, _streams(gateway):
        before = gateway.gateway.settings
        for number, content in enumerate(broken, start=1):
            gateway.file.write_bytes(content)
            gateway.gateway.reload_now()
            await eventually(partial(_rejected, gateway, number))
            assert gateway.gateway.settings is before
            assert len(gateway.members) == 2
        assert (await ask(gateway.url, "/predict", SHORT)).status == 200
        text = " ".join(line.getMessage() for line in gateway.logged)
        assert "max_in_flight" in text
        assert "no_such_key" in text


async def _rejected(gateway: Running, count: int) -> bool:
    return await gateway.metric(RELOADS, result="rejected") >= count


@pytest.mark.fault("I2")
async def test_a_good_configuration_takes_effect_and_no_stream_is_lost() -> None:
    async with fakes(3, SLOW) as (a, b, c), gateway_to(a, b) as gateway:
        async with _streams(gateway):
            await gateway.reconfigure(
                settings_for(b.url, c.url, limits={"max_queued": 7}, server={"max_body_bytes": 2048})
            )
            assert {str(member.spec.address) for member in gateway.members} == {b.url, c.url}
            assert gateway.service.limits.max_queued == 7
            assert (await ask(gateway.url, "/predict", bytes(3000))).status == 413
        assert await gateway.metric(RELOADS, result="ok") == 1
        said = [line.getMessage() for line in gateway.logged if "Configuration changed" in line.getMessage()]
        assert any("limits.max_queued" in line and "7" in line for line in said)
        assert any(a.url in line for line in said)
        c_member = gateway.member(c)
        await eventually(lambda: c_member.health.state.value == "ready")
        before = a.stats.requests["/v1/completions"]
        for _ in range(6):
            assert (await ask(gateway.url, "/v1/completions", {"prompt": "x", "max_tokens": 1})).status == 200
        assert a.stats.requests["/v1/completions"] == before, "what has left gets nothing new"
        assert c.stats.requests["/v1/completions"] > 0


@pytest.mark.fault("I2")
async def test_an_unchanged_configuration_is_no_change() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        member = gateway.members[0]
        for _ in range(3):
            gateway.file.write_bytes(gateway.file.read_bytes())
            gateway.gateway.reload_now()
        await gateway.reconfigure(settings_for(fake.url, limits={"max_queued": 7}))
        assert await gateway.metric(RELOADS, result="ok") == 1
        assert gateway.members == (member,), "nothing was built anew"


@pytest.mark.fault("I2")
async def test_a_symlink_swap_is_noticed_as_kubernetes_does_it() -> None:
    """`..data` points to a new folder; the file's own path stays as it is."""
    async with fakes(2, SLOW) as (a, b), gateway_to(a) as gateway:
        folder = gateway.file.parent
        for name, url in (("one", a.url), ("two", b.url)):
            (folder / name).mkdir()
            (folder / name / gateway.file.name).write_bytes(msgspec.json.encode(settings_for(url)))
        (folder / "..data").symlink_to("one")
        gateway.file.unlink()
        gateway.file.symlink_to(Path("..data") / gateway.file.name)
        async with _streams(gateway):
            (folder / "..next").symlink_to("two")
            (folder / "..next").replace(folder / "..data")
            await eventually(
                lambda: [str(member.spec.address) for member in gateway.members] == [b.url], within=6
            )
        await eventually(lambda: gateway.fleet.ready)
        assert (await ask(gateway.url, "/predict", SHORT)).status == 200


@pytest.mark.fault("I2")
async def test_a_file_that_vanishes_changes_nothing() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        before = gateway.gateway.settings
        gateway.file.unlink()
        gateway.gateway.reload_now()
        await eventually(lambda: _rejected(gateway, 1))
        assert gateway.gateway.settings is before
        assert (await ask(gateway.url, "/predict", SHORT)).status == 200


def _keys(**secrets: str) -> dict[str, Any]:
    return {
        "keys": [
            {"name": name, "sha256": hashlib.sha256(secret.encode()).hexdigest()}
            for name, secret in secrets.items()
        ]
    }


@pytest.mark.fault("I2")
async def test_keys_come_and_go_and_streams_of_old_ones_end_whole() -> None:
    async def status(gateway: Running, key: str) -> int:
        headers = [("authorization", f"Bearer {key}")]
        return (await ask(gateway.url, "/predict", SHORT, headers=headers)).status

    async with fakes(1, SLOW) as (fake,), gateway_to(fake, auth=_keys(a="key-a")) as gateway:
        assert await status(gateway, "key-a") == 200
        async with asyncio.TaskGroup() as clients:
            headers = [("authorization", "Bearer key-a")]
            stream = clients.create_task(
                record(gateway.url, "/predict", {"prompt": "x", **STREAM}, headers), name="stream"
            )
            await eventually(lambda: gateway.members[0].in_flight == 1)
            await gateway.reconfigure(settings_for(fake.url, auth=_keys(b="key-b")))
            assert await status(gateway, "key-a") == 401
            assert await status(gateway, "key-b") == 200
        assert stream.result().done
        assert not any("key-" in line.getMessage() for line in gateway.logged)


@pytest.mark.fault("I2")
async def test_models_come_and_go_and_streams_of_old_ones_end_whole() -> None:
    def settings(**urls: str) -> dict[str, Any]:
        models = [{"name": name, "endpoints": [url]} for name, url in urls.items()]
        return {**QUICK, "models": models}

    async def status(gateway: Running, model: str) -> int:
        body = {"prompt": "x", "model": model, "max_tokens": 1}
        return (await ask(gateway.url, "/v1/completions", body)).status

    async with fakes(3, SLOW) as (a, b, c), serving(settings(a=a.url, b=b.url)) as gateway:
        await eventually(lambda: all(model.ready for model in gateway.gateway.models()))
        assert [await status(gateway, model) for model in "abc"] == [200, 200, 404]
        async with asyncio.TaskGroup() as clients:
            body = {"prompt": "x", "model": "b", **STREAM}
            stream = clients.create_task(record(gateway.url, "/v1/completions", body), name="stream")
            await eventually(lambda: b.stats.in_flight == 1)
            await gateway.reconfigure(settings(a=a.url, c=c.url))
            await eventually(lambda: all(model.ready for model in gateway.gateway.models()))
            assert [await status(gateway, model) for model in "abc"] == [200, 404, 200]
        assert stream.result().done

        async def forgotten() -> bool:
            return 'model="b"' not in (await ask(gateway.url, "/metrics")).body.decode()

        await eventually(forgotten, what="the series of the model that went are gone")
        await gateway.reconfigure(settings(b=b.url, a=a.url))
        await eventually(lambda: all(model.ready for model in gateway.gateway.models()))
        assert [await status(gateway, model) for model in "abc"] == [200, 200, 404]


@pytest.mark.fault("I2")
async def test_sighup_reads_it_again_in_every_worker_and_the_log_level_follows(tmp_path: Path) -> None:
    file = tmp_path / "infer_config.yaml"
    async with fakes(2) as (a, b):
        port = free_port()

        def write(url: str, level: str) -> None:
            server = {"host": "127.0.0.1", "port": port, "workers": 2, "settle_s": 0}
            settings = settings_for(url, server=server, logging={"level": level, "format": "json"})
            fresh = file.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(settings))
            fresh.replace(file)

        write(a.url, "info")
        command = [sys.executable, "-m", "gateway", "gateway", "--config", str(file)]
        async with running(command, f"http://127.0.0.1:{port}", "/readyz") as gateway:
            await eventually(lambda: gateway.log.count("is ready") >= 2)
            write(b.url, "error")
            gateway.signal(signal.SIGHUP)

            async def moved() -> bool:
                await ask(gateway.url, "/v1/completions", {"prompt": "x", "max_tokens": 1})
                page = (await ask(gateway.url, "/metrics")).body.decode()
                return f'{RELOADS}{{result="ok"}} 2.0' in page

            await eventually(moved, within=5)
            before, quiet = a.stats.requests["/v1/completions"], gateway.log.count("gateway.requests")
            for _ in range(8):
                assert (await ask(gateway.url, "/v1/completions", SHORT)).status == 200
            assert a.stats.requests["/v1/completions"] == before
            assert gateway.log.count("gateway.requests") == quiet
