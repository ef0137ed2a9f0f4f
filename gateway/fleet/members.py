"""Which members each model has, from the settings: named ones, and this machine's backends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backends import layout
from gateway.fleet.discovery import fixed
from gateway.fleet.member import Spec
from gateway.settings.tree import Settings
from gateway.upstream.address import Address


def specs(settings: Settings, run_dir: Path) -> Mapping[str, list[Spec]]:
    """Members by model. Those behind DNS names are not among them: `discovery.Names` finds them."""
    models = settings.served_models()
    replicas = [(model.name, model.engine.replicas if model.engine is not None else 0) for model in models]
    places = layout.machine_places(run_dir, replicas)
    return {
        model.name: [
            *(Spec(place.name, Address(path=str(place.engine_socket))) for place in places[model.name]),
            *fixed(model.endpoints),
        ]
        for model in models
    }
