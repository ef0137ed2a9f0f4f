"""Which backends this machine has, according to the settings. For serve, backend, gateway and status."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backends.layout import Place
from backends.rundir import default_run_dir
from backends.settings import EngineSettings
from gateway.fleet import members
from gateway.settings.tree import Settings


def machine_run_dir(settings: Settings) -> Path:
    """The folder with the sockets of this machine's backends."""
    return default_run_dir(settings.run_dir, settings.server.port)


def model_places(settings: Settings) -> Mapping[str, tuple[Place, ...]]:
    """The places of each model's local backends, by model name; none for a model without an engine here."""
    return members.places(settings, machine_run_dir(settings))


def engine_places(settings: Settings) -> list[tuple[Place, EngineSettings]]:
    """Every local backend with its engine's settings; its position is its index."""
    places = model_places(settings)
    return [
        (place, model.engine)
        for model in settings.served_models()
        if model.engine is not None
        for place in places[model.name]
    ]
