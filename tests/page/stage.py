"""What the page shows: a gateway in front of two engines beside a store, under load, in canary mode.

`real` starts vLLM by `changeover serve`; `played` is the same gateway in this process in front of fake
engines and fake agents, for a look within seconds. A version waits as a canary until somebody decides.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import httpx2

from backends.fake import Behaviour
from backends.fake.trouble import Manner
from loadtests.swap.scene import ADMIN as SCENE_TOKEN
from loadtests.swap.scene import Scene, qualify, scene
from tests.gateway.rollout.rolled import ADMIN as PLAYED_TOKEN
from tests.gateway.rollout.rolled import Rolled, rolled

CANARY = {"share": 0.3, "min_requests": 1_000_000, "max_s": 3000}
"""So it waits for a person."""
CLIENTS = 4
VERSIONS = 2
WORDS = ("river", "engine", "policy", "garden", "lighthouse", "harbour")


class Publishes(Protocol):
    async def publish(self, step: int) -> int:
        """Other weights, with metrics; the version."""


@dataclass
class Stage:
    """Somewhere to look at."""

    url: str
    token: str
    publishes: Publishes
    within_s: float
    """For a member's swap."""


class Load:
    """A handful of clients that ask `/predict`, some of them the same as others."""

    def __init__(self, url: str, pause_s: float) -> None:
        self._url = url
        self._pause_s = pause_s
        self._random = random.Random(9)

    async def ask(self, number: int) -> None:
        """Until cancelled."""
        async with httpx2.AsyncClient(base_url=self._url, timeout=120, trust_env=False) as client:
            for turn in itertools.count():
                word = self._random.choice(WORDS)
                text = f"The {word}" if turn % 3 == 0 else f"{number}.{turn}: the {word}"
                body = {"prompt": text, "max_tokens": self._random.choice((2, 4, 12)), "temperature": 0}
                await client.post("/predict", json=body)
                await asyncio.sleep(self._random.expovariate(1 / self._pause_s))


@asynccontextmanager
async def load(url: str, *, pause_s: float) -> AsyncIterator[None]:
    """Clients that ask until the end of the block."""
    asking = Load(url, pause_s)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asking.ask(number), name=f"client {number}") for number in range(CLIENTS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


class _Real:
    """Checkpoints are made all at once: most of the time goes into starting torch."""

    def __init__(self, play: Scene) -> None:
        self._play = play
        self._left: list[Path] = []

    async def publish(self, step: int) -> int:
        return await asyncio.to_thread(self._publish, step)

    def _publish(self, step: int) -> int:
        probe: tuple[str, ...] = ()
        if not self._left:
            self._left = self._play.chain(self._play.base(), VERSIONS)
            probe = ("--probe", "none")  # the first is not what is looked at
        told = (("--metrics", f"{name}={value}") for name, value in metrics_of(step).items())
        options = [word for pair in told for word in pair]
        return self._play.publish(self._left.pop(0), step, *probe, *options)


class _Played:
    def __init__(self, fleet: Rolled) -> None:
        self._fleet = fleet

    async def publish(self, step: int) -> int:
        label = await asyncio.to_thread(self._fleet.publish, step, metrics=metrics_of(step))
        return int(label[1:].partition("-")[0])


def metrics_of(step: int) -> dict[str, float]:
    """What a trainer would say of it."""
    return {"reward": round(0.2 + step / 400, 3), "loss": round(2.4 / (1 + step / 50), 3)}


@asynccontextmanager
async def real(engine_python: Path, tell: Callable[[str], None]) -> AsyncIterator[Stage]:
    """Two vLLM engines. Raises ServerFailed, SceneFailed."""
    with TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as folder:
        tell("showing on scratch engines that weights may be changed in place here")
        await asyncio.to_thread(qualify, Path(folder), tell)
        tell("starting two engines and a gateway")
        options: dict[str, Any] = {"mode": "canary", "canary": CANARY, "wait_s": 5, "member_deadline_s": 300}
        entered = scene(Path(folder), engine_python, cache="memory", **options)
        play = await asyncio.to_thread(entered.__enter__)
        try:
            yield Stage(play.url, SCENE_TOKEN, _Real(play), 300.0)
        finally:
            await asyncio.to_thread(entered.__exit__, None, None, None)


@asynccontextmanager
async def played() -> AsyncIterator[Stage]:
    """Two fake engines, whose swaps take two seconds."""
    slow = Behaviour(delay_headers_s=0.1)
    async with rolled(
        2, manner=Manner(phase_s=0.4), behaviour=slow, cache={"type": "memory"}, mode="canary", canary=CANARY
    ) as fleet:
        yield Stage(fleet.gateway.url, PLAYED_TOKEN, _Played(fleet), 60.0)
