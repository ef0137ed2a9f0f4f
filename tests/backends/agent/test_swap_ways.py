"""Adapters, changed tokenizers, refused versions and probes, with an engine that stands in for vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from backends.contract import Outcome, Phase, ProbeRule, Way
from checkpoints.draft import Request
from checkpoints.manifest import PROBE_FILE
from checkpoints.probe.contract import SCHEMA, Probe, Scored, encode_probe
from checkpoints.publish import publish
from tests.backends.agent.swapped import Agent, swapping
from tests.checkpoints.models import write_adapter, write_json, write_model
from tests.drivers.waiting import eventually
from tests.stand_in_vllm import logprobs, weights_of

IDS = tuple(range(3, 40))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since sockets lie in it."""
    with TemporaryDirectory(prefix="co-") as name:
        yield Path(name)


def probe_of(folder: Path) -> bytes:
    """What the weights there say, as the stand-in computes it."""
    rows = [next(iter(row.values()))["logprob"] for row in logprobs(weights_of(folder), list(IDS))]
    top = tuple((token,) for token in IDS[1:])
    text = Scored(IDS, tuple(rows), top, tuple((row,) for row in rows))
    return encode_probe(Probe(SCHEMA, "bfloat16", (text, text)))


def publish_with_probe(agent: Agent, folder: Path, seed: int, *, of: Path | None = None) -> int:
    """A version whose probe is of its own weights, or (a lie) of other ones."""
    source = write_model(folder / f"probed-{seed}", seed=seed)
    request = Request(run="run", step=seed, probe=probe_of(of or source))
    version = publish(source, agent.store, request).manifest.version
    agent.learn(version)
    return version


async def test_an_adapter_is_put_on_exchanged_and_taken_off_without_leaving_rotation(folder: Path) -> None:
    async with swapping(folder, versions=0, enable_lora=True) as agent:
        for seed in (1, 2, 3):
            source = write_adapter(folder / f"adapter-{seed}", seed=seed)
            publish(source, agent.store, Request(run="run", step=seed, base=None))
            agent.learn(seed)
        refused = agent.traffic.refused
        for version in (1, 2, 3, 0):
            status = await agent.swap(version=version)
            assert (status.outcome, status.way) == (Outcome.SERVING_NEW, Way.ADAPTER), status
            assert await agent.serves() == status.version
        assert agent.traffic.refused == refused
        agent.traffic.check()


async def test_an_engine_that_dies_with_an_adapter_comes_back_with_it(folder: Path) -> None:
    async with swapping(folder, versions=0, enable_lora=True) as agent:
        publish(write_adapter(folder / "adapter"), agent.store, Request(run="run", step=1))
        agent.learn(1)
        status = await agent.swap(version=1)
        agent.store.point("serving", 1, by="test")
        agent.meet(**{"/v1/models": "dies"})
        await eventually(lambda: agent.poke("/v1/models"), within=20)
        await eventually(lambda: agent.backend.status().restarts == 1, within=20)
        await agent.ready()
        assert await agent.serves() == status.version
        agent.traffic.check()


@pytest.mark.fault("S2")
async def test_another_tokenizer_means_a_restart(folder: Path) -> None:
    async with swapping(folder) as agent:
        source = write_model(folder / "other", seed=9)
        write_json(source / "generation_config.json", {"temperature": 0.1})
        request = Request(run="run", step=9, restart_allowed=True)
        version = publish(source, agent.store, request).manifest.version
        agent.learn(version)
        status = await agent.swap(version=version)
        assert (status.outcome, status.way) == (Outcome.SERVING_NEW, Way.RESTART), status
        assert "generation_config" in status.reason
        agent.traffic.check()


@pytest.mark.fault("S2")
async def test_a_version_that_was_altered_in_the_store_never_reaches_the_engine(folder: Path) -> None:
    async with swapping(folder) as agent:
        data = agent.store.files.local(agent.store.manifest(2).data)
        assert data is not None
        raw = bytearray((data / "model.safetensors").read_bytes())
        raw[-3] ^= 1
        (data / "model.safetensors").write_bytes(raw)
        await agent.backend.prepare(2)
        await eventually(lambda: _prepared(agent) is not None)
        status = await agent.swap(version=2)
        assert (status.outcome, status.out_of_rotation_s) == (Outcome.SERVING_OLD, 0)
        assert "altered" in status.reason
        assert "altered" in (_prepared(agent) or "")
        agent.traffic.check()


def _prepared(agent: Agent) -> str | None:
    preparing = agent.backend.status().preparing
    return preparing.error if preparing else None


async def test_what_was_prepared_is_ready_before_its_swap(folder: Path) -> None:
    async with swapping(folder) as agent:
        await agent.backend.prepare(1)
        await agent.backend.prepare(1)
        await eventually(lambda: (agent.backend.status().preparing or False) and _ready(agent), within=20)
        assert (await agent.swap(version=1)).outcome is Outcome.SERVING_NEW


def _ready(agent: Agent) -> bool:
    preparing = agent.backend.status().preparing
    return preparing is not None and preparing.ready and preparing.done_bytes == preparing.total_bytes > 0


async def test_a_probe_that_passes_is_reported_and_one_that_fails_brings_the_old_back(folder: Path) -> None:
    async with swapping(folder) as agent:
        good = publish_with_probe(agent, folder, 11)
        bad = publish_with_probe(agent, folder, 12, of=folder / "base")
        passed = await agent.swap(version=good, probe=ProbeRule.REQUIRED)
        assert passed.outcome is Outcome.SERVING_NEW, passed
        assert passed.report is not None and passed.report["passed"] is True
        failed = await agent.swap(version=bad)
        assert failed.outcome is Outcome.SERVING_OLD, failed
        assert failed.report is not None and failed.report["passed"] is False
        assert "the probe failed" in failed.reason
        assert await agent.serves() == passed.version
        agent.traffic.check()


async def test_a_version_without_a_probe_is_not_served_where_one_is_demanded(folder: Path) -> None:
    async with swapping(folder) as agent:
        status = await agent.swap(version=1, probe=ProbeRule.REQUIRED)
        assert (status.outcome, status.phase) == (Outcome.SERVING_OLD, Phase.ENDED)
        assert "without a probe" in status.reason
        assert agent.store.manifest(1).file(PROBE_FILE) is None


async def test_a_version_that_is_not_there_changes_nothing(folder: Path) -> None:
    async with swapping(folder, versions=0) as agent:
        status = await agent.swap(version=7)
        assert (status.outcome, status.reason) == (Outcome.SERVING_OLD, "m has no version 7")


async def test_the_very_weights_that_are_served_may_be_published_and_swapped_in(folder: Path) -> None:
    async with swapping(folder, versions=0) as agent:
        version = agent.publish(folder, 100)
        assert (await agent.swap(version=version)).outcome is Outcome.SERVING_NEW
        agent.traffic.check()
