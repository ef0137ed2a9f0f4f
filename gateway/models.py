"""The models that are served: for each a fleet, its keeper and a service, over all changes of the settings.

A model that the settings take up is served from then on; one that they drop gets nothing new, and goes with
its members and series when its last request has ended. One that comes back before that simply stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from gateway.fleet import members
from gateway.fleet.discovery import LookUp, Names
from gateway.fleet.fleet import Fleet, FleetOptions
from gateway.fleet.keeper import Keeper
from gateway.flow.account import Account
from gateway.flow.batcher import BatchOptions
from gateway.flow.service import Service, ServiceOptions
from gateway.flow.services import Services
from gateway.observe.metrics import Metrics
from gateway.settings.tree import Batching, BatchMode, Model, Settings
from gateway.tasks import TaskOwner

UNKNOWN_ENGINE_BATCH = 32
"""Prompts in one call to an engine of which we do not know how many it computes at a time."""


class Models:
    """Iterates over every service that has something to do: the served ones and those that end."""

    def __init__(
        self,
        run_dir: Path,
        metrics: Metrics,
        account: Account,
        tasks: TaskOwner,
        random: Random,
        look_up: LookUp,
    ) -> None:
        self.served = Services([])
        self._run_dir = run_dir
        self._metrics = metrics
        self._account = account
        self._tasks = tasks
        self._random = random
        self._look_up = look_up
        self._all: dict[str, Service] = {}
        self._keepers: dict[str, Keeper] = {}
        self._wanted: frozenset[str] = frozenset()
        """The names that the settings give."""
        self._started = False

    def __iter__(self) -> Iterator[Service]:
        return iter(tuple(self._all.values()))

    async def start(self) -> None:
        """Begin to look after the members. On the loop that serves."""
        self._started = True
        for keeper in self._keepers.values():
            await keeper.start()

    async def close(self) -> None:
        for keeper in self._keepers.values():
            await keeper.close()

    def apply(self, settings: Settings, now: float) -> None:
        """Serve what the settings say. Nothing in flight notices."""
        specs = members.specs(settings, self._run_dir)
        models = settings.served_models()
        self._wanted = frozenset(model.name for model in models)
        self._metrics.set_models(self._wanted | self._all.keys())
        for model in models:
            service = self._all.get(model.name)
            if service is None:
                service = self._take_up(settings, model, now)
                names = Names(model.endpoints, self._look_up)
                self._keep(model.name, Keeper(service.fleet, specs[model.name], names, settings.health))
            else:
                service.fleet.reconfigure(_fleet_options(settings, model))
                service.reconfigure(_service_options(settings, model), now)
                self._keepers[model.name].set_members(specs[model.name], model.endpoints, settings.health)
        self.served.replace([self._all[model.name] for model in models])
        self._drop_idle()

    def tick(self, now: float) -> None:
        """Let time pass for every request; some times a second."""
        for service in self:
            service.tick(now)
        if len(self._all) > len(self._wanted):
            self._drop_idle()

    def _take_up(self, settings: Settings, model: Model, now: float) -> Service:
        fleet = Fleet(model.name, _fleet_options(settings, model), self._metrics, self._random)
        options = _service_options(settings, model)
        service = Service(fleet, options, self._metrics, self._account, self._tasks, now)
        fleet.on_change = lambda: service.rotation_changed(time.monotonic())
        self._all[model.name] = service
        return service

    def _keep(self, name: str, keeper: Keeper) -> None:
        self._keepers[name] = keeper
        if self._started:
            self._tasks.start(f"keep {name}", keeper.start())

    def _drop_idle(self) -> None:
        """Let go of models that are served no more and have nothing left to do."""
        for name, service in tuple(self._all.items()):
            if name in self._wanted or service.live:
                continue
            del self._all[name]
            keeper = self._keepers.pop(name)
            keeper.retire()
            self._tasks.start(f"let go of {name}", keeper.close())
            self._metrics.set_models(self._all)


def _fleet_options(settings: Settings, model: Model) -> FleetOptions:
    assert model.routing is not None
    assert model.limits is not None
    return FleetOptions(
        model.routing, settings.health, model.limits.max_in_flight_per_member, settings.timeouts.connect_s
    )


def _service_options(settings: Settings, model: Model) -> ServiceOptions:
    assert model.limits is not None
    return ServiceOptions(
        model.limits, settings.timeouts, settings.retries, _batch_options(settings.batching, model)
    )


def _batch_options(batching: Batching, model: Model) -> BatchOptions:
    engine = model.engine.max_batch_size if model.engine is not None else UNKNOWN_ENGINE_BATCH
    wanted = batching.max_batch_size or engine
    size = min(wanted, engine) if model.engine is not None else wanted
    on = batching.mode is BatchMode.AUTO
    return BatchOptions(on, batching.window_ms / 1000, size, batching.max_tokens)
