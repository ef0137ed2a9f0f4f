"""A swapping agent in this event loop, beside an engine that stands in for vLLM; a store; and traffic.

async with swapping(folder) as agent:
    status = await agent.swap(version=2)
    agent.traffic.check()
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import msgspec

from backends.agent.assignment import Assignment, assign
from backends.agent.backend import Swapping
from backends.agent.qualified import Qualified
from backends.agent.tasks import Tasks
from backends.contract import VERSION_HEADER, Phase, State, SwapOrder, SwapStatus
from backends.layout import places
from backends.qualify.judge import Verdict
from backends.qualify.record import SCHEMA, Record
from backends.qualify.records import keep
from backends.settings import Checkpoints, EngineSettings
from backends.vllm.install import VENV_VARIABLE
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from tests.checkpoints.models import write_model
from tests.drivers.waiting import eventually
from tests.stand_in_vllm import install, weights_of

MODEL = "m"
LIMIT_S = 40.0


class Eager(Random):
    """Engines that died are started again at once."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


@dataclass
class Traffic:
    """Asks one warm prompt again and again, and remembers each answer."""

    socket: Path
    weights: dict[str, str] = field(default_factory=dict)
    """Label to what computes under it."""
    answers: list[tuple[str, str]] = field(default_factory=list)
    """Label and text of each 200."""
    refused: int = 0

    async def run(self) -> None:
        async with self.client() as client:
            while True:
                await self.ask(client)
                await asyncio.sleep(0.005)

    def client(self) -> httpx2.AsyncClient:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.socket), verify=False)
        return httpx2.AsyncClient(transport=transport, base_url="http://engine", timeout=30)

    async def ask(self, client: httpx2.AsyncClient) -> int | None:
        """The status; None where the engine is gone."""
        try:
            response = await client.post("/v1/completions", json={"model": MODEL, "prompt": "warm"})
        except httpx2.TransportError:
            return None
        if response.status_code == 200:
            text = response.json()["choices"][0]["text"]
            self.answers.append((response.headers[VERSION_HEADER], text))
        else:
            self.refused += 1
        return response.status_code

    def check(self) -> None:
        """No answer by other weights than its label's, none out of a stale cache, none half new."""
        assert self.answers
        wrong = {(label, text) for label, text in self.answers if self.weights.get(label) != text}
        assert not wrong, wrong


@dataclass
class Agent:
    backend: Swapping
    assignment: Assignment
    store: Store
    faults: Path
    traffic: Traffic

    async def ready(self) -> None:
        await eventually(lambda: self.backend.status().state is State.READY, within=LIMIT_S)

    async def begin(self, **order: Any) -> SwapOrder:
        wanted = SwapOrder(**{"id": secrets.token_hex(4), "version": 1, "warm_up": 1, **order})
        await self.backend.swap(wanted)
        return wanted

    async def swap(self, **order: Any) -> SwapStatus:
        """The swap's end."""
        return await self.end_of(await self.begin(**order))

    async def end_of(self, order: SwapOrder) -> SwapStatus:
        await self.comes_to(order, Phase.ENDED)
        return self.backend.swap_status(order.id)

    async def comes_to(self, order: SwapOrder, phase: Phase) -> None:
        await eventually(lambda: self.backend.swap_status(order.id).phase is phase, within=LIMIT_S)

    def meet(self, **faults: str) -> None:
        """The faults that wait for the engine, by path."""
        self.faults.write_bytes(msgspec.json.encode(faults))

    async def serves(self) -> str:
        """The label of the next answer, once it gives one."""
        before = len(self.traffic.answers)
        await eventually(lambda: len(self.traffic.answers) > before + 1, within=LIMIT_S)
        return self.traffic.answers[-1][0]

    def publish(self, folder: Path, seed: int, **differs: Any) -> int:
        """One version more; returns its number."""
        source = write_model(folder / f"source-{seed}", seed=seed, **differs)
        request = Request(run="run", step=seed, restart_allowed=True)
        version = publish(source, self.store, request).manifest.version
        self.learn(version)
        return version

    async def poke(self, path: str) -> bool:
        """Ask for a path; whether the engine broke off."""
        async with self.traffic.client() as client:
            try:
                await client.get(path)
            except httpx2.TransportError:
                return True
        return False

    def qualify(self, verdict: Verdict = Verdict.QUALIFIED) -> None:
        """Write the record that the base's combination has been tried."""
        combination = Qualified(self.store, self.assignment.recipe).combination(self.assignment.base)
        assert combination is not None
        record = Record(
            SCHEMA, combination, verdict, "as the test says", (), None, None, 0.1, 1.0, "2026-11-30", "test"
        )
        keep(self.store.files, record)

    def learn(self, version: int) -> None:
        """What a version computes."""
        manifest = self.store.manifest(version)
        folder = self.store.files.local(manifest.data)
        assert folder is not None
        self.traffic.weights[f"v{version}-{manifest.digest[:8]}"] = weights_of(folder)


@asynccontextmanager
async def swapping(
    folder: Path, *, versions: int = 2, qualified: bool = True, **engine: Any
) -> AsyncIterator[Agent]:
    """An agent whose engine serves the base, ready, under traffic; `versions` are published."""
    (place,) = places(folder / "run", MODEL, 1, logs=folder / "logs")
    place.engine_socket.parent.mkdir(parents=True)
    faults, store_folder = folder / "faults.json", folder / "store"
    checkpoints = Checkpoints(store=str(store_folder), local=str(folder / "local"), keep_local=2)
    base = write_model(folder / "base", seed=100)
    settings = EngineSettings(model=str(base), served_name=MODEL, replicas=1, shutdown_timeout_s=0, **engine)
    environment = {
        **os.environ,  # noqa: TID251 (passed on)
        VENV_VARIABLE: str(install(folder / "venv")),
        "CHANGEOVER_CACHE_DIR": str(folder / "cache"),
        "STAND_IN_FAULTS": str(faults),
    }
    assignment = assign(
        settings,
        place,
        token=secrets.token_hex(16),
        environment=environment,
        report=print,
        checkpoints=checkpoints,
    )
    store = open_store(str(store_folder), MODEL)
    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group, "test")
        backend = Swapping(assignment, store, checkpoints.keep_local, tasks, Eager())
        traffic = Traffic(place.engine_socket, {assignment.base.label: weights_of(base)})
        agent = Agent(backend, assignment, store, faults, traffic)
        for seed in range(1, versions + 1):
            agent.publish(folder, seed)
        if qualified:
            agent.qualify()
        running = group.create_task(backend.run(), name="agent")
        asking = group.create_task(traffic.run(), name="traffic")
        try:
            await agent.ready()
            yield agent
        finally:
            asking.cancel()
            backend.stop()
            await running
            tasks.cancel()
