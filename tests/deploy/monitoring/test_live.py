"""Every rule and panel, asked of a real Prometheus that scrapes a real gateway, engines and a trainer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deploy.checks import rules
from deploy.checks.dashboards import expressions
from deploy.checks.known_metrics import SAMPLES, read_sample, sample_lines
from deploy.checks.promql import selected
from deploy.grafana.build import dashboard
from deploy.grafana.source import read_sources
from deploy.stack.watching import Watch
from tests.deploy.monitoring.live import node_exporter, prometheus, tcp_to
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually
from tests.engines import MODEL, EnginesUnderTest
from tests.gateways import FORMS, QUICK, serving
from tests.training.runs import prepare, started, wait_for

LONG = {"max_steps": 1_000_000, "save_every": 1_000_000}
NOT_HERE = frozenset(
    {
        *(
            f"DCGM_FI_DEV_{name}"
            for name in ("FB_FREE", "FB_USED", "GPU_TEMP", "GPU_UTIL", "POWER_USAGE", "XID_ERRORS")
        ),
        *(f"changeover_training_{name}" for name in ("gpu_memory_ratio", "gpu_utilization_ratio", "reward")),
        *(f"changeover_training_exporter_{name}" for name in ("last_version", "pending")),
        *(f"changeover_parity_{name}" for name in ("k3", "mean_abs_delta_logprob")),
    }
)
"""Needs a GPU, reinforcement learning, an exporter, or a version that was rolled out with a probe."""
AN_EPOCH = "step 14/"
"""In the log of a run of 24 records, two at a time."""


@asynccontextmanager
async def trainer(folder: Path) -> AsyncIterator[int]:
    """The port of a real run that trains, from after its first epoch."""
    prepare(folder, training=LONG, metrics={"port": 0, "host": "127.0.0.1"})
    log = folder / "logs" / "train.log"
    with started(folder) as process:
        await asyncio.to_thread(wait_for, process, log, AN_EPOCH)
        address = re.search(r"metrics at http://[^:]+:(\d+)", log.read_text())
        assert address is not None, log.read_text()
        yield int(address[1])


async def keep_asking(url: str) -> None:
    """All routes, whole and streamed, until cancelled; one question again and again, for the cache."""
    number = 0
    while True:
        number += 1
        for path, body in FORMS.values():
            answer = await ask(url, path, body | {"model": MODEL, "temperature": 0, "seed": number})
            assert answer.status == 200, answer.body
        await ask(url, "/predict", {"prompt": "Again", "max_tokens": 4, "temperature": 0})
        await ask(url, "/predict", {"prompt": [f"{number} {i}" for i in range(3)], "max_tokens": 4})


@asynccontextmanager
async def everything(engines: EnginesUnderTest, folder: Path) -> AsyncIterator[Watch]:
    async with AsyncExitStack() as stack:
        ports = [
            await stack.enter_async_context(tcp_to(engine.place.engine_socket)) for engine in engines.engines
        ]
        endpoints = [{"url": f"http://127.0.0.1:{port}"} for port in ports]
        checkpoints = {"store": str(folder / "store")}
        settings = {**QUICK, "models": [{"name": MODEL, "endpoints": endpoints}], "checkpoints": checkpoints}
        gateway = await stack.enter_async_context(serving(settings))
        await eventually(lambda: len(gateway.ready) == len(ports), what="the engines are ready")
        (folder / "run").mkdir()
        training = await stack.enter_async_context(trainer(folder / "run"))
        node = await stack.enter_async_context(node_exporter())
        asking = asyncio.get_running_loop().create_task(keep_asking(gateway.url), name="keep asking")
        try:
            targets = {
                "gateway": [int(gateway.url.rpartition(":")[2])],
                "engine": ports,
                "trainer": [training],
                "node": [node],
            }
            yield await stack.enter_async_context(prometheus(folder, targets))
            assert not asking.done(), asking.exception()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.long
@pytest.mark.fault("H5")
@pytest.mark.engine
@pytest.mark.training
async def test_every_expression_has_an_answer_on_live_series(
    tiny_engines: EnginesUnderTest, tmp_path: Path
) -> None:
    async with everything(tiny_engines, tmp_path) as watch:
        await _evaluated(watch)
        await _answered(watch)
        for rule in rules.read_rules():
            await watch.ask(rule.expression)
        shown = set(await watch.names())
        # A tiny model that learns two dozen lines by heart is not at rest.
        firing = await watch.ask('ALERTS{alertstate="firing",area!="training"}')

    missing = _asked_for() - shown
    assert missing <= NOT_HERE, sorted(missing - NOT_HERE)
    assert not firing, [alert["metric"] for alert in firing]


@pytest.mark.engine
async def test_the_stored_sample_is_what_a_live_engine_shows(tiny_engines: EnginesUnderTest) -> None:
    with tiny_engines.engines[0].http() as client:
        client.post("/v1/completions", json={"model": MODEL, "prompt": "Hello", "max_tokens": 4})
        shown = set(sample_lines(client.get("/metrics").text))

    stored = {f"{name}{{{','.join(sorted(s.labels - {'job', 'instance'}))}}}" for name, s in _stored("vllm")}
    assert stored <= shown, f"make it again, see samples/vllm.txt: {sorted(stored - shown)}"


async def test_the_stored_sample_is_what_node_exporter_shows() -> None:
    async with node_exporter() as port, httpx2.AsyncClient(trust_env=False) as client:
        shown = (await client.get(f"http://127.0.0.1:{port}/metrics")).text

    asked = {name for name in _asked_for() if name.startswith("node_")}
    names = {line.partition("{")[0] for line in sample_lines(shown)}
    stored = {name for name, _ in _stored("node")}
    assert asked <= stored
    assert stored <= names, f"make it again, see samples/node.txt: {sorted(stored - names)}"


async def _evaluated(watch: Watch) -> None:
    """Return when every rule has been evaluated without an error."""

    async def done() -> bool:
        answer = await watch.client.get(f"{watch.prometheus}/api/v1/rules")
        groups: list[dict[str, Any]] = answer.json()["data"]["groups"]
        evaluated = [rule for group in groups for rule in group["rules"]]
        assert len(evaluated) == len(rules.read_rules())
        assert not [rule["lastError"] for rule in evaluated if rule.get("lastError")]
        return all(rule["health"] == "ok" for rule in evaluated)

    await eventually(done, within=30, what="every rule is evaluated")


async def _answered(watch: Watch) -> None:
    """Return when every panel that should show something has. A busy machine may be late for a scrape."""
    waiting = {
        f"{name}, {title}: {expression}": expression
        for name, source in read_sources().items()
        for title, expression in expressions(dashboard(source))
        if title not in {panel.title for panel in source.panels if panel.empty} | {"Rollouts"}
    }
    assert len(waiting) > 60

    async def all_answered() -> bool:
        for panel, expression in tuple(waiting.items()):
            if any(sample["value"][1] != "NaN" for sample in await watch.ask(expression)):
                del waiting[panel]
        assert not waiting, "\n".join(waiting)
        return True

    await eventually(all_answered, within=40, what="every panel has something to show")


def _stored(name: str) -> list[tuple[str, Any]]:
    return list(read_sample(SAMPLES / f"{name}.txt").items())


def _asked_for() -> set[str]:
    """Every metric that is scraped and that a rule or a panel names."""
    asked = [rule.expression for rule in rules.read_rules()]
    asked += [e for source in read_sources().values() for _, e in expressions(dashboard(source))]
    names = {name for expression in asked for name in selected(expression)}
    return names - set(rules.recorded(rules.read_rules())) - {"ALERTS"}
