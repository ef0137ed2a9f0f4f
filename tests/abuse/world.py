"""Two gateways on one store and one Valkey, before three fake engines with agents: what is abused.

    with ground() as shared:
        async with world(shared) as here:
            await here.gateways[0].comes_to_rest()

`Ground` is made once and outlives the worlds: the server of Valkey, and a store with four versions.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backends.contract import Phase, State
from backends.fake import Behaviour, Fake
from backends.fake.agent import FakeAgent
from backends.fake.trouble import How, Manner, Trouble
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from gateway.observe.record import RequestRecord
from tests.abuse.client import key_of
from tests.abuse.steps import BAD, ENGINES, GATEWAYS, GOOD, TENANTS
from tests.checkpoints.models import write_model
from tests.drivers.valkey import Valkey, valkey
from tests.drivers.waiting import eventually
from tests.gateway.rollout.rolled import MODEL, InStore, engines, rollout_settings
from tests.gateways import Running, serving

Settings = dict[str, Any]

NO_PROBE_PASSES = Trouble(Phase.PROBING, How.FAILS, version=BAD, first=None)
TIMEOUTS = {
    "connect_s": 0.5,
    "first_byte_s": 1.5,
    "silence_s": 1.0,
    "heartbeat_s": 0.3,
    "total_s": 6.0,
    "stream_total_s": 6.0,
}
CANARY = {"share": 0.5, "min_requests": 3, "min_s": 0.1, "max_s": 3, "max_latency_ratio": 1000}
HEALS_S = 30.0
"""A leader that could not say that it leaves is followed after ten seconds."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What worlds have in common."""

    redis: Valkey
    store: Path
    """Copied for each."""


@contextmanager
def ground() -> Iterator[Ground]:
    """Made once; takes a second."""
    with TemporaryDirectory() as name, valkey() as redis:
        folder = Path(name)
        store = open_store(str(folder / "store"), MODEL)
        for version in (*GOOD, BAD):
            source = write_model(folder / f"step-{version}", seed=version)
            publish(source, store, Request("run", version))
        yield Ground(redis, folder / "store")


@dataclass(slots=True)
class World:
    """Everything that a script may lay hands on."""

    folder: Path
    redis: Valkey
    cache_url: str
    store: Store
    fakes: tuple[Fake, ...]
    agents: tuple[FakeAgent, ...]
    gateways: dict[int, Running] = field(default_factory=dict)
    records: list[list[RequestRecord]] = field(default_factory=list)
    """Of every gateway that ever was."""
    lives: dict[int, AsyncExitStack] = field(default_factory=dict)
    tasks: int = 0
    """How many run while nothing happens."""

    def settings(self, urls: slice = slice(None), **more: Any) -> Settings:
        """Of a gateway before these engines."""
        made = rollout_settings(self.folder, self.fakes[urls], self.agents[urls], lease="redis", **ROLLOUT)
        made.pop("endpoints")
        made["cache"] = {"type": "tiered", "url": self.cache_url}
        made["timeouts"] = TIMEOUTS
        made["auth"] = {"keys": [_key(tenant) for tenant in range(len(TENANTS))]}
        for name, section in more.items():
            made[name] = {**made[name], **section} if name in made else section
        return made

    async def open(self, index: int) -> None:
        """Start the gateway of this number, again if it has ended."""
        life = AsyncExitStack()
        running = await life.enter_async_context(serving(self.settings()))
        self.records.append(running.records)
        self.lives[index], self.gateways[index] = life, running

    async def shut(self, index: int) -> None:
        """End it. Raises AssertionError if it has logged an exception."""
        await self.lives[index].aclose()

    def all_ready(self) -> bool:
        """Whether every gateway has every engine in rotation."""
        return all(len(gateway.ready) == ENGINES for gateway in self.gateways.values())

    async def settled(self, engine: int) -> FakeAgent:
        """The agent, once its engine is not on its way back from a death."""
        agent = self.agents[engine]
        await eventually(lambda: agent.status().state is not State.RESTARTING, within=10)
        return agent

    def label(self, version: int) -> str:
        """Of a version's weights."""
        return InStore(self.store).label(version)

    def records_by_id(self) -> dict[str, list[RequestRecord]]:
        """All that were ever written."""
        found: dict[str, list[RequestRecord]] = {}
        for records in self.records:
            for record in records:
                found.setdefault(record.request_id.decode("latin-1"), []).append(record)
        return found


ROLLOUT: Settings = {"auto": False, "canary": CANARY, "wait_s": 0.5}


@asynccontextmanager
async def world(shared: Ground) -> AsyncIterator[World]:
    """All on the base model, ready. At the end of the block everything ends; nothing is judged."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(shared.store, folder / "store")
        heal_redis(shared.redis, forget=True)
        manner = Manner((NO_PROBE_PASSES,), phase_s=0.01, restart_s=0.05)
        async with engines(ENGINES, folder, manner, Behaviour()) as (store, fakes, agents):
            here = World(folder, shared.redis, shared.redis.url, store, fakes, agents)
            try:
                await asyncio.gather(*(here.open(index) for index in range(GATEWAYS)))
                await eventually(
                    lambda: all(len(g.ready) == ENGINES for g in here.gateways.values()), within=10
                )
                here.tasks = len(asyncio.all_tasks())
                yield here
            finally:
                heal_redis(shared.redis)
                await asyncio.gather(*(here.shut(index) for index in here.lives))


def heal_redis(redis: Valkey, *, forget: bool = False) -> None:
    """Let it run; `forget`: with nothing in it."""
    if redis.alive:
        redis.thaw()
    else:
        redis.start()
    if forget:
        with redis.client() as client:
            client.flushall()


def kinds_of_tasks() -> Counter[str]:
    """What runs on this loop, by name."""
    return Counter(task.get_name().split(":")[0] for task in asyncio.all_tasks())


def _key(tenant: int) -> Settings:
    digest = hashlib.sha256(key_of(tenant).encode()).hexdigest()
    return {"name": TENANTS[tenant], "sha256": digest, "priority": tenant}
