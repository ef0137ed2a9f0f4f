"""The rollouts that the settings ask for: one task for all models of this worker, and its lease.

`Rollouts` is what the composition root holds: `start`, `close`, `configure`, and the models' rollouts for the
admin routes. Without a store there is nothing to roll out, and `build` gives None.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from backends import rundir
from checkpoints.errors import CheckpointError
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from gateway.flow.cache.build import redis_url
from gateway.flow.cache.redis_client import connect
from gateway.flow.service import Service
from gateway.flow.services import Services
from gateway.observe.evidence import EvidenceReader
from gateway.observe.metrics import Metrics
from gateway.rollout.agents import Agents
from gateway.rollout.lease import FileLease, Lease, RedisLease
from gateway.rollout.ledger import Ledger
from gateway.rollout.run import ModelRollouts, Surroundings
from gateway.rollout.watch import Book
from gateway.settings.rollout import LeaseKind
from gateway.settings.tree import CacheType, Settings
from gateway.tasks import TaskOwner

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOCK = "rollout.lock"
MOVING_S = 0.25
"""Between two rounds while some member is on its way."""
THREADS = 4
"""For what blocks: a store that hangs holds one of them, and its own model's rollouts."""


class Rollouts:
    """All rollouts of one worker."""

    def __init__(
        self, settings: Settings, run_dir: Path, services: Callable[[], Services], metrics: Metrics
    ) -> None:
        """`services`: the models that are served now."""
        self._settings = settings
        self._run_dir = run_dir
        self._services = services
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(THREADS, "rollout")
        self._evidence = EvidenceReader(run_dir / "metrics")
        self._tasks = TaskOwner("rollout")
        self._models: dict[str, ModelRollouts] = {}
        self._lease = _lease(settings, run_dir)
        self._poked = asyncio.Event()
        self._failing: set[str] = set()
        self.by = f"{socket.gethostname()}:{os.getpid()}"

    def find(self, model: str) -> ModelRollouts | None:
        """One model's rollouts; None: it has no store, or is not served."""
        return self._models.get(model)

    @property
    def models(self) -> list[ModelRollouts]:
        return list(self._models.values())

    async def start(self) -> None:
        """Begin to look after rollouts. On the loop that serves."""
        self._tasks.start("rounds", self._run())

    async def close(self) -> None:
        await self._tasks.close()
        for model in list(self._models):
            await self._drop(model)
        await self._lease.release()
        self._evidence.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def configure(self, settings: Settings) -> None:
        """Options that take effect at once."""
        self._settings = settings
        for model in self._models.values():
            model.options = settings.rollout
        self.poke()

    def poke(self) -> None:
        """Look at once: somebody has changed something."""
        self._poked.set()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _run(self) -> None:
        while True:
            await self._follow_models()
            moving = [await self._round(model) for model in self._models.values()]
            pause_s = self._settings.rollout.poll_s
            try:
                async with asyncio.timeout(min(MOVING_S, pause_s) if any(moving) else pause_s):
                    await self._poked.wait()
            except TimeoutError:
                continue
            finally:
                self._poked.clear()

    async def _round(self, model: ModelRollouts) -> bool:
        """A round; whatever it fails by is said once, and the next round is made all the same."""
        try:
            moving = await model.round()
        except (CheckpointError, OSError) as error:
            if model.model not in self._failing:
                logger.warning("%s: rollouts wait: %s", model.model, error)
            self._failing.add(model.model)
            model.next = f"nothing can be done: {error}"
            return False
        except Exception:
            logger.exception("%s: a round of the rollout failed; the next is made all the same", model.model)
            return False
        self._failing.discard(model.model)
        return moving

    async def _follow_models(self) -> None:
        served = {service.name: service for service in self._services()}
        for name in self._models.keys() - served.keys():
            await self._drop(name)
        for name, service in served.items():
            if name not in self._models and name not in self._failing:
                self._take_up(service)

    def _take_up(self, service: Service) -> None:
        name = service.name
        try:
            store = _store(self._settings, name)
        except (CheckpointError, OSError) as error:
            logger.error("%s: its weights are never changed: %s", name, error)  # noqa: TRY400 (no trace needed)
            self._failing.add(name)
            return
        around = Surroundings(
            fleet=service.fleet,
            book=Book(store),
            agents=Agents(self._token_of),
            lease=self._lease,
            ledger=Ledger(self._metrics.rollout_series(name)),
            shadow=service.shadow,
            count=partial(self._evidence.read, name),
            by=self.by,
        )
        self._models[name] = ModelRollouts(name, self._settings.rollout, around, self.in_thread)

    async def _drop(self, name: str) -> None:
        model = self._models.pop(name)
        await model.around.agents.close()
        model.around.ledger.close()
        await model.around.shadow.close()

    def _token_of(self, control: Path | str) -> str:
        if isinstance(control, Path):
            return rundir.read_token(self._run_dir)
        token = self._settings.admin.control_token
        return token.get_secret_value() if token is not None else ""


def build_rollouts(
    settings: Settings, run_dir: Path, services: Callable[[], Services], metrics: Metrics
) -> Rollouts | None:
    """None: no store is configured, and weights are never changed. Raises CheckpointError, OSError."""
    if settings.checkpoints.store is None:
        return None
    return Rollouts(settings, run_dir, services, metrics)


def _store(settings: Settings, model: str) -> Store:
    checkpoints = settings.checkpoints
    assert checkpoints.store is not None
    check = None
    if checkpoints.trusted_keys:
        from checkpoints.signatures import checker  # needs a package that few installations have

        check = checker([Path(key) for key in checkpoints.trusted_keys])
    single = len(settings.served_models()) == 1
    name = checkpoints.model if checkpoints.model is not None and single else model
    return open_store(checkpoints.store, name, check=check)


def _lease(settings: Settings, run_dir: Path) -> Lease:
    kind = settings.rollout.lease
    has_redis = settings.cache.type in (CacheType.REDIS, CacheType.TIERED)
    if kind is LeaseKind.FILE or (kind is LeaseKind.AUTO and not has_redis):
        return FileLease(run_dir / LOCK)
    name = hashlib.sha256((settings.checkpoints.store or "").encode()).hexdigest()[:16]
    owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
    return RedisLease(connect(redis_url(settings.cache)), name, owner)
