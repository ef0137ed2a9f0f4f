"""From settings to what a keeper keeps: finds the engine and the model, and refuses what cannot work.

Everything that can be found out without starting an engine is found out here, and said in one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.agent.copies import untied_form
from backends.agent.weights import Weights, base_weights
from backends.layout import Place
from backends.models.builtin import Report
from backends.models.cache import cache_folder
from backends.models.resolve import ResolvedModel, resolve_model
from backends.models.version import launch_version
from backends.settings import Checkpoints, EngineSettings
from backends.vllm.command import Command, Listen, UnixListen, engine_command
from backends.vllm.guard import ELSEWHERE_VARIABLE
from backends.vllm.install import Installation, find_engine

KERNELS_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How this machine starts an engine on given weights."""

    settings: EngineSettings
    engine: Installation
    listen: Listen
    token: str
    scratch: Path
    inherited: Mapping[str, str]
    kernels: Path
    """Where compiled kernels are kept: what an engine compiles for its first log-probabilities takes half a
    minute, and its temporary folder is emptied."""

    def command(self, weights: Weights, elsewhere: str = "") -> Command:
        """`elsewhere`: start out of rotation, for this reason."""
        command = engine_command(
            self.settings,
            weights.model,
            vllm=self.engine.vllm,
            device=self.engine.device,
            listen=self.listen,
            token=self.token,
            version=weights.label,
            scratch=self.scratch,
            cores=len(os.sched_getaffinity(0)),
            inherited=self.inherited,
        )
        environment = {KERNELS_VARIABLE: str(self.kernels), **command.environment}
        if elsewhere:
            environment[ELSEWHERE_VARIABLE] = elsewhere
        return Command(command.argv, environment)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one keeper keeps."""

    name: str
    model: str
    """As clients call it."""
    base: Weights
    recipe: Recipe
    log: Path
    copies: Path
    """Versions of this model on this machine."""

    @property
    def listen(self) -> Listen:
        return self.recipe.listen

    @property
    def token(self) -> str:
        return self.recipe.token

    @property
    def scratch(self) -> Path:
        return self.recipe.scratch

    @property
    def start_timeout_s(self) -> float:
        return self.recipe.settings.start_timeout_s

    @property
    def shutdown_timeout_s(self) -> float:
        return self.recipe.settings.shutdown_timeout_s


def assign(
    settings: EngineSettings,
    place: Place,
    *,
    token: str,
    environment: Mapping[str, str],
    report: Report,
    listen: Listen | None = None,
    checkpoints: Checkpoints | None = None,
) -> Assignment:
    """What the backend at this place keeps; the engine listens there unless `listen` says otherwise.

    Raises EngineMissing, ModelUnusable, ModelNotMade, CheckpointError. Blocks for up to minutes where a
    model is made.
    """
    engine = find_engine(environment, settings.device)
    cache = cache_folder(environment, Path.home())
    model = resolve_model(settings, cache=cache, engine_python=engine.python, report=report)
    version = launch_version(model)
    options = checkpoints or Checkpoints()
    copies = _copies_folder(options, cache) / (options.model or place.model)
    if options.store is not None and model.local:
        model = ResolvedModel(str(untied_form(copies, version, Path(model.source))), local=True)
    return Assignment(
        name=place.name,
        model=place.model,
        base=base_weights(version, model),
        recipe=Recipe(
            settings,
            engine,
            listen or UnixListen(place.engine_socket),
            token,
            place.scratch,
            environment,
            kernels=cache.parent / "kernels",
        ),
        log=place.log,
        copies=copies,
    )


def _copies_folder(options: Checkpoints, cache: Path) -> Path:
    if options.local is not None:
        return Path(options.local).expanduser().absolute()
    return cache.parent / "checkpoints"
