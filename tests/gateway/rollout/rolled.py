"""A gateway that rolls out for real, in front of fake engines with fake agents, from a store in a folder.

async with rolled(3) as fleet:
    fleet.publish(1)
    await fleet.serves(1)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from backends.fake import Behaviour, Fake
from backends.fake.agent import TOKEN, FakeAgent
from backends.fake.trouble import Manner
from backends.versions import BASE, label_of
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.rollouts import Rollout, Stage
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from tests.checkpoints.models import write_model
from tests.drivers.raw import Response, ask
from tests.drivers.waiting import eventually
from tests.gateways import Running, Settings, serving, settings_for

MODEL = "small"
BASE_LABEL = "base-00000000"
ADMIN = "let-me-in"
NO_METRICS: Mapping[str, float] = {}
QUICK: dict[str, Any] = {"poll_s": 0.05, "wait_s": 2, "member_deadline_s": 20}


@dataclass
class InStore:
    """What fake agents know of the store."""

    store: Store

    def label(self, version: int) -> str:
        return label_of(version, self.store.manifest(version).digest) if version != BASE else BASE_LABEL

    def serving(self) -> int:
        return self.store.aliases.read("serving").version or BASE


@dataclass
class Rolled:
    """The whole."""

    folder: Path
    store: Store
    fakes: tuple[Fake, ...]
    agents: tuple[FakeAgent, ...]
    settings: Settings
    gateway: Running

    def publish(
        self, step: int, *, seed: int | None = None, metrics: Mapping[str, float] = NO_METRICS
    ) -> str:
        """A version made of other weights; returns its label."""
        source = write_model(self.folder / f"step-{step}", seed=step if seed is None else seed)
        version = publish(source, self.store, Request("run", step, metrics=dict(metrics))).manifest.version
        return self.label(version)

    def label(self, version: int) -> str:
        return InStore(self.store).label(version)

    @property
    def record(self) -> Rollout | None:
        return self.store.rollouts.read()

    @property
    def labels(self) -> list[str]:
        """What each engine serves."""
        return [fake.engine.label for fake in self.fakes]

    async def stage(self, *stages: Stage, within: float = 20.0) -> Rollout:
        """The record, once it is in one of these stages."""

        def there() -> Rollout | None:
            record = self.record
            assert record is not None
            assert record.stage in stages, (record.stage, record.reason)
            return record

        found: Rollout = await eventually(there, within=within)
        return found

    async def serves(self, version: int, within: float = 20.0) -> None:
        """Until every engine does, and the gateway knows it."""

        def all_do() -> bool:
            known = [member.version for member in self.gateway.members]
            assert set(known) == {self.label(version)}, (known, self.record)
            record = self.record
            return record is not None and not record.active

        await eventually(all_do, within=within)

    async def counts(self, name: str, value: float, **labels: str) -> None:
        """Until the metric has this value."""

        async def has() -> bool:
            found = await self.gateway.metric(name, **labels)
            assert found == value, found
            return True

        await eventually(has)

    async def admin(self, method: str, path: str, body: object = None) -> Response:
        headers = [("authorization", f"Bearer {ADMIN}")]
        content = msgspec.json.encode(body) if body is not None else b""
        return await ask(self.gateway.url, path, content, method=method, headers=headers)

    async def shown(self) -> Any:
        return msgspec.json.decode((await self.admin("GET", "/admin/rollouts")).body)

    def events(self) -> list[str]:
        """What the journal says of rollouts, oldest first."""
        return [entry.event for entry in self.store.journal.last(500) if entry.event.startswith("rollout")]


@asynccontextmanager
async def engines(
    count: int, folder: Path, manner: Manner | None = None, behaviour: Behaviour | None = None
) -> AsyncIterator[tuple[Store, tuple[Fake, ...], tuple[FakeAgent, ...]]]:
    """Engines with agents beside a store, without a gateway."""
    store = open_store(str(folder / "store"), MODEL)
    async with AsyncExitStack() as stack:
        fakes, agents = [], []
        for index in range(count):
            fake = await stack.enter_async_context(Fake.start(behaviour, name=chr(97 + index)))
            agents.append(await stack.enter_async_context(FakeAgent.start(fake, InStore(store), manner)))
            fakes.append(fake)
        yield store, tuple(fakes), tuple(agents)


def rollout_settings(
    folder: Path, fakes: tuple[Fake, ...], agents: tuple[FakeAgent, ...], **rollout: Any
) -> dict[str, Any]:
    """Of a gateway in front of them."""
    endpoints = [{"url": fake.url, "control": agent.url} for fake, agent in zip(fakes, agents, strict=True)]
    return {
        **settings_for(),
        "models": [{"name": MODEL, "endpoints": endpoints}],
        "checkpoints": {"store": str(folder / "store")},
        "rollout": {**QUICK, **rollout},
        "admin": {"token": ADMIN, "control_token": TOKEN},
    }


@asynccontextmanager
async def rolled(
    count: int,
    *,
    manner: Manner | None = None,
    behaviour: Behaviour | None = None,
    cache: Settings | None = None,
    **rollout: Any,
) -> AsyncIterator[Rolled]:
    """So many engines, all on the base model, behind one gateway. `rollout`: its settings."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        async with engines(count, folder, manner, behaviour) as (store, fakes, agents):
            settings = rollout_settings(folder, fakes, agents, **rollout)
            settings.pop("endpoints")
            settings["cache"] = cache or {"type": "off"}
            async with serving(settings) as gateway:
                await eventually(lambda: len(gateway.ready) == count)
                yield Rolled(folder, store, fakes, agents, settings, gateway)
                await gateway.comes_to_rest()
