"""Which members each model has, from the settings: named ones, and this machine's backends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from backends import layout
from gateway.fleet.discovery import fixed
from gateway.fleet.member import Spec
from gateway.settings.tree import Settings
from gateway.upstream.address import Address


def places(settings: Settings, run_dir: Path) -> Mapping[str, tuple[layout.Place, ...]]:
    """The places of each model's backends on this machine; none for a model without an engine here."""
    replicas = [
        (model.name, model.engine.replicas if model.engine is not None else 0)
        for model in settings.served_models()
    ]
    return layout.machine_places(run_dir, replicas)


def specs(settings: Settings, run_dir: Path) -> Mapping[str, list[Spec]]:
    """Members by model. Those behind DNS names are not among them: `discovery.Names` finds them."""
    local = places(settings, run_dir)
    return {
        model.name: [
            *(_local(place) for place in local[model.name]),
            *fixed(model.endpoints),
        ]
        for model in settings.served_models()
    }


def _local(place: layout.Place) -> Spec:
    return Spec(place.name, Address(path=str(place.engine_socket)), control=place.control_socket)
