"""A gateway is killed while it changes the engines' weights: the next one sees what is, and finishes it.

Whoever comes has no memory of the rollout: only the store's record, and what each engine says of itself.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from backends.contract import Phase
from backends.fake import Fake
from backends.fake.agent import FakeAgent
from backends.fake.trouble import How, Manner, Trouble
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.rollouts import Stage
from checkpoints.store.store import Store
from tests.checkpoints.models import write_model
from tests.drivers.process import running_gateway
from tests.drivers.waiting import eventually
from tests.gateway.rollout.rolled import BASE_LABEL, InStore, engines, rollout_settings


def _config(folder: Path, fakes: tuple[Fake, ...], agents: tuple[FakeAgent, ...], **rollout: Any) -> Any:
    settings = rollout_settings(folder, fakes, agents, **rollout)
    settings.pop("endpoints")
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    return {**settings, "run_dir": str(folder / "run")}


def _publish(store: Store, folder: Path, step: int) -> str:
    version = publish(write_model(folder / f"step-{step}", seed=step), store, Request("run", step))
    return InStore(store).label(version.manifest.version)


def _swapped(agents: tuple[FakeAgent, ...]) -> int:
    return sum(bool(agent.orders) for agent in agents)


@pytest.mark.fault("I3")
@pytest.mark.parametrize("when", [Stage.PREPARING, Stage.ROLLING])
async def test_the_next_gateway_finishes_what_a_killed_one_began(tmp_path: Path, when: Stage) -> None:
    manner = Manner(phase_s=0.05)
    async with engines(3, tmp_path, manner) as (store, fakes, agents):
        config = _config(tmp_path, fakes, agents)
        async with running_gateway(config) as first:
            label = _publish(store, tmp_path, 1)

            def begun() -> bool:
                record = store.rollouts.read()
                started = when is Stage.PREPARING or _swapped(agents) > 0
                return record is not None and record.stage is when and started

            await eventually(begun, within=20)
            first.signal(signal.SIGKILL)
            await first.ended()
        assert store.aliases.read("serving").version is None
        async with running_gateway(config):
            await eventually(lambda: {fake.engine.label for fake in fakes} == {label}, within=30)
            await eventually(lambda: store.aliases.read("serving").version == 1, within=20)
        ids = [[order.id for order in agent.orders] for agent in agents]
        assert all(len(set(each)) == len(each) == 1 for each in ids), ids


@pytest.mark.fault("I3")
async def test_the_next_gateway_takes_back_what_fails_after_the_first_was_killed(tmp_path: Path) -> None:
    """The last engine's probe fails: all go back to what they served, though another one began."""
    async with engines(2, tmp_path, Manner(phase_s=0.05)) as (store, fakes, agents):
        agents[1].behave(Manner((Trouble(Phase.PROBING, How.FAILS, version=1, first=None),), phase_s=0.05))
        config = _config(tmp_path, fakes, agents)
        async with running_gateway(config) as first:
            _publish(store, tmp_path, 1)
            await eventually(lambda: _swapped(agents) > 0, within=20)
            first.signal(signal.SIGKILL)
            await first.ended()
        async with running_gateway(config):

            def taken_back() -> bool:
                record = store.rollouts.read()
                return record is not None and record.stage is Stage.ROLLED_BACK

            await eventually(taken_back, within=30)
            await eventually(lambda: {fake.engine.label for fake in fakes} == {BASE_LABEL}, within=20)
        assert store.manifest(1).digest in store.rollouts.quarantined()


@pytest.mark.fault("S10")
async def test_of_two_gateways_on_one_machine_one_leads_and_the_other_follows(tmp_path: Path) -> None:
    """Each has its own port and its own way of seeing the fleet; orders are given once."""
    async with engines(3, tmp_path, Manner(phase_s=0.02)) as (store, fakes, agents):
        config = _config(tmp_path, fakes, agents)
        other = {**config, "server": {"workers": 2}}
        async with running_gateway(other):
            labels = []
            for step in (1, 2):
                labels.append(_publish(store, tmp_path, step))
                await eventually(lambda: {fake.engine.label for fake in fakes} == {labels[-1]}, within=30)
                await eventually(lambda step=step: store.aliases.read("serving").version == step, within=20)
        assert [[order.version for order in agent.orders] for agent in agents] == [[1, 2]] * 3
        events = [entry.event for entry in store.journal.last(500)]
        assert events.count("rollout promoted") == 2
