"""From settings to what a keeper keeps: finds the engine and the model, and refuses what cannot work.

Everything that can be found out without starting an engine is found out here, and said in one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from backends.agent.keeper import Assignment
from backends.layout import Place
from backends.models.builtin import Report
from backends.models.cache import cache_folder
from backends.models.resolve import resolve_model
from backends.models.version import launch_version
from backends.settings import EngineSettings
from backends.vllm.command import Listen, UnixListen, engine_command
from backends.vllm.install import find_engine


def assign(
    settings: EngineSettings,
    place: Place,
    *,
    token: str,
    environment: Mapping[str, str],
    report: Report,
    listen: Listen | None = None,
) -> Assignment:
    """What the backend at this place keeps; the engine listens there unless `listen` says otherwise.

    Raises EngineMissing, ModelUnusable, ModelNotMade. Blocks for up to minutes where a model is made.
    """
    engine = find_engine(environment, settings.device)
    cache = cache_folder(environment, Path.home())
    model = resolve_model(settings, cache=cache, engine_python=engine.python, report=report)
    version = launch_version(model)
    address = listen or UnixListen(place.engine_socket)
    command = engine_command(
        settings,
        model,
        vllm=engine.vllm,
        device=engine.device,
        listen=address,
        token=token,
        version=version,
        scratch=place.scratch,
        cores=len(os.sched_getaffinity(0)),
        inherited=environment,
    )
    return Assignment(
        name=place.name,
        model=place.model,
        version=version,
        command=command,
        listen=address,
        token=token,
        log=place.log,
        scratch=place.scratch,
        start_timeout_s=settings.start_timeout_s,
        shutdown_timeout_s=settings.shutdown_timeout_s,
    )
