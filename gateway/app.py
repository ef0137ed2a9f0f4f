"""The composition root of one worker: builds every part from the settings and wires them together.

Nothing is global: two gateways in one process do not know of each other. `Gateway` also answers the
questions of the ops routes (`gateway.http.ops.Operated`) and takes over changed settings.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

from fastapi import FastAPI

from gateway.errors import GatewayError
from gateway.feedback import build_feedback
from gateway.fleet.discovery import LookUp, system_look_up
from gateway.fleet.split import Split
from gateway.flow.account import Account, Sink
from gateway.flow.cache.build import build_cache, redis_url
from gateway.flow.cache.redis_client import connect
from gateway.flow.pipeline import Pipeline
from gateway.flow.quota import LocalQuota
from gateway.flow.quota_redis import RedisQuota
from gateway.flow.service import Service
from gateway.flow.services import Services
from gateway.flow.sharing import Sharing
from gateway.http import admin, admin_rollouts, feedback, ops
from gateway.http.auth import Keys
from gateway.http.edge import Edge
from gateway.http.exchange import Exchange
from gateway.http.page import routes as page
from gateway.http.reading import Affinity, Reader
from gateway.http.routes import BY_PATH
from gateway.models import Models
from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.derived import QUANTILES
from gateway.observe.exposition import Exposition
from gateway.observe.figures import Figures
from gateway.observe.labels import Reload
from gateway.observe.lag import LagSampler
from gateway.observe.metrics import Metrics
from gateway.observe.status import GatewayStatus, MemberStatus, ModelStatus
from gateway.observe.trace import Identifiers
from gateway.rollout.build import build_rollouts
from gateway.rollout.desk import Desk
from gateway.settings.diff import Diff
from gateway.settings.load import Loaded
from gateway.settings.problems import SettingsError
from gateway.settings.tree import BatchMode, QuotaStore, Settings
from gateway.settings.watch import Watcher
from gateway.tasks import TaskOwner
from gateway.version import installed_version

logger = logging.getLogger(__name__)

SWEEP_S = 0.05
"""How often time limits are looked at: a limit is kept to within this."""

EDGE_SWEEP_S = 1.0
"""How often idle and slow connections are looked at."""

MAX_BUFFERED_BYTES = 512 * 1024 * 1024
"""Request bodies that one worker holds at a time, unsent."""


class Gateway:
    """One worker of the gateway."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        run_dir: Path,
        slot: int = 0,
        sinks: tuple[Sink, ...] = (),
        load: Callable[[], Loaded] | None = None,
        look_up: LookUp = system_look_up,
        on_settings: Callable[[Settings], None] = lambda settings: None,
    ) -> None:
        """`run_dir`: sockets and shared counters, prepared. `load` reads the settings again, for reloads.

        `look_up` finds the addresses of DNS endpoints. `on_settings` hears of settings before they are taken
        over, for what lies outside the gateway.
        """
        settings = loaded.settings
        now = time.monotonic()
        self.settings: Settings = settings
        self.version = installed_version()
        self._leaving = False
        self._started = now
        self._on_settings = on_settings
        self._cells = Cells(run_dir / "metrics", slot, table.FAMILIES, now=now)
        self._exposition = Exposition(run_dir / "metrics")
        self._random = random.Random()
        self.metrics = Metrics(
            self._cells, [model.name for model in settings.served_models()], version=self.version
        )
        self._tasks = TaskOwner("gateway", failed=lambda name: self.metrics.task_failures.add())
        self._account = Account(sinks)
        self._models = Models(run_dir, self.metrics, self._account, self._tasks, self._random, look_up)
        self._keys = Keys(settings.auth.keys)
        self._reader = Reader(
            self._keys,
            settings.server.max_body_bytes,
            Identifiers(),
            _affinity(settings),
            _batches(settings),
            settings.telemetry.otlp_endpoint is not None,
        )
        self._quota = LocalQuota(settings.auth.keys, now)
        self.cache = build_cache(settings.cache, run_dir, self.metrics, self._tasks, self._random)
        self._shared_quotas = self._build_shared_quotas(settings)
        self._pipeline = Pipeline(
            self._reader.read,
            self._models.served,
            self._quota,
            self._account,
            self.metrics,
            Sharing(self.cache),
            self._shared_quotas,
            self._tasks,
        )
        self._models.apply(settings, now)
        self.edge = Edge(
            handle=self._pipeline.handle,
            routes=BY_PATH,
            max_body_bytes=settings.server.max_body_bytes,
            max_connections=settings.server.max_connections,
            max_buffered_bytes=MAX_BUFFERED_BYTES,
            header_timeout_s=settings.server.header_timeout_s,
            keep_alive_s=settings.server.keep_alive_s,
            cors_origins=frozenset(origin.encode() for origin in settings.server.cors.origins),
            early=self._refuse_unread,
        )
        self._watcher = self._watch(loaded, load) if load is not None else None
        self.app: FastAPI = ops.build(self, settings.server.cors, self._lifespan)
        token = settings.admin.token
        secret = token.get_secret_value() if token is not None else None
        admin.declare(self.app, secret, self)
        self.rollouts = build_rollouts(settings, run_dir, lambda: self._models.served, self.metrics)
        desk = Desk(self.rollouts) if self.rollouts is not None else None
        admin_rollouts.declare(self.app, secret, desk)
        self._feedback = build_feedback(settings, lambda name: self.services.find(name).name)
        feedback.declare(self.app, self._feedback, self._key_name)
        page.declare(self.app, secret, self)
        self.metrics.last_reload.set(time.time_ns() / 1e9)

    # Life

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin to look after members, limits and settings. On the loop that serves."""
        lag = LagSampler(self.metrics.lag)
        lag.start()
        self._lag = lag
        await self._models.start()
        self._tasks.start("sweep", self._sweep())
        self._tasks.start("sweep connections", self._sweep_edge())
        if self._watcher is not None:
            self._tasks.start("watch settings", self._watcher.run())
        if self.rollouts is not None:
            await self.rollouts.start()
        if self._feedback is not None:
            await self._feedback.start()

    async def stop(self) -> None:
        self.abort()
        self._lag.stop()
        if self.rollouts is not None:
            await self.rollouts.close()
        if self._feedback is not None:
            await self._feedback.close()
        await self._models.close()
        await self._tasks.close()
        if self.cache is not None and self.cache.remote is not None:
            await self.cache.remote.close()
        if self._shared_quotas is not None:
            await self._shared_quotas.close()
        self.metrics.book()
        self._cells.release()
        self._exposition.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._models.tick(time.monotonic())
            self.metrics.book()

    async def _sweep_edge(self) -> None:
        while True:
            self.edge.date_block = b"date: %b\r\n" % formatdate(usegmt=True).encode()
            now = time.monotonic()
            self.edge.sweep(now)
            if self.cache is not None:
                self.cache.heed_signal()
            self.metrics.open_connections.set(len(self.edge.connections))
            for service in self._models:
                for member in service.fleet.members:
                    member.pool.close_idle(now)
                    member.count_connections()
            await asyncio.sleep(EDGE_SWEEP_S)

    # Going down

    @property
    def leaving(self) -> bool:
        return self._leaving

    @property
    def running(self) -> int:
        """Requests that have begun and not ended."""
        return sum(len(service.live) for service in self._models)

    def begin_leaving(self) -> None:
        """Readiness turns 503; requests are still answered."""
        self._leaving = True

    def abort(self) -> None:
        """End every request that still runs, each in the form that is possible."""
        for service in self._models:
            for call in tuple(service.live):
                call.shut_down()

    # Services

    @property
    def services(self) -> Services:
        """The models that are served."""
        return self._models.served

    def _refuse_unread(self, exchange: Exchange, error: GatewayError) -> None:
        self._reader.name(exchange)
        self._pipeline.refuse(exchange, error)

    def _build_shared_quotas(self, settings: Settings) -> RedisQuota | None:
        if settings.auth.quotas is not QuotaStore.REDIS or not settings.auth.keys:
            return None
        client = connect(redis_url(settings.cache))
        return RedisQuota(self._quota, client, settings.cache.timeout_s, self._random, self._tasks)

    # Settings

    def _watch(self, loaded: Loaded, load: Callable[[], Loaded]) -> Watcher:
        return Watcher(loaded, load=load, on_change=self._take_over, on_error=self._keep)

    def reload_now(self) -> None:
        """SIGHUP."""
        if self._watcher is not None:
            self._watcher.poke()

    def _keep(self, error: SettingsError) -> None:
        self.metrics.reloads.add(Reload.REJECTED)
        logger.error("The configuration is broken and was not taken over:\n%s", error)

    def _take_over(self, loaded: Loaded, change: Diff) -> None:
        """Changed settings: what can take effect does, at once and as a whole; nothing in flight notices."""
        settings = loaded.settings
        now = time.monotonic()
        self._on_settings(settings)
        self._models.apply(settings, now)
        self._keys.replace(settings.auth.keys)
        self._quota.configure(settings.auth.keys, now)
        self._reader.affinity = _affinity(settings)
        self._reader.batching = _batches(settings)
        self._reader.max_body_bytes = self.edge.max_body_bytes = settings.server.max_body_bytes
        self.edge.known.clear()
        self.settings = settings
        if self.rollouts is not None:
            self.rollouts.configure(settings)
        self.metrics.reloads.add(Reload.OK)
        self.metrics.last_reload.set(time.time_ns() / 1e9)
        for line in change.changes:
            logger.info("Configuration changed: %s", line)

    # What the ops routes ask

    def check_key(self, authorization: str) -> None:
        self._keys.identify(authorization.encode("latin-1", "replace"))

    def _key_name(self, authorization: str) -> str:
        key = self._keys.identify(authorization.encode("latin-1", "replace"))
        return key.name if key is not None else ""

    def names(self) -> list[str]:
        return self._models.served.names

    def versions_of(self, name: str) -> list[str]:
        return self._models.served.versions_of(name)

    def models(self) -> list[ModelStatus]:
        now = time.monotonic()
        return [_model_status(service, now) for service in self._models.served]

    async def status(self) -> GatewayStatus:
        self.metrics.book()
        minute = self._exposition.last_minute()
        return GatewayStatus(
            version=self.version,
            uptime_s=time.monotonic() - self._started,
            workers=self.settings.server.workers,
            qps=minute.total.qps,
            latency_s={str(share): minute.total.quantile(share) for share in QUANTILES},
            in_flight=self.running,
            queued=sum(service.admission.queued for service in self._models),
            models=self.models(),
        )

    async def figures(self) -> Figures:
        self.metrics.book()
        return await self._exposition.figures([service.name for service in self.services])

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        self.metrics.book()
        return await self._exposition.scrape(accept)


def _affinity(settings: Settings) -> Affinity:
    return Affinity.of([model.routing for model in settings.served_models() if model.routing is not None])


def _batches(settings: Settings) -> bool:
    return settings.batching.mode is BatchMode.AUTO


def _model_status(service: Service, now: float) -> ModelStatus:
    fleet = service.fleet
    split = fleet.split or Split()
    return ModelStatus(
        name=service.name,
        ready=fleet.ready,
        policy=fleet.options.routing.policy.value,
        versions=fleet.versions,
        stable=split.stable or "",
        candidate=split.candidate or "",
        share=split.share,
        members=[
            MemberStatus(
                name=member.name,
                address=str(member.spec.address),
                state=member.health.state.value,
                reason=member.health.reason,
                version=member.version,
                in_flight=member.in_flight,
                tokens=member.tokens,
                requests=member.requests,
                failures=member.failures,
                latency_s=member.last_ok_s or None,
                since_s=now - member.health.since,
            )
            for member in fleet.members
        ],
    )
