"""A dashboard as people write it: rows of panels, each a title, a unit, a sentence and its queries.

The files are sources/*.yaml; `deploy.grafana.build` makes Grafana's JSON of them. Unknown keys are errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from ruamel.yaml import YAML

SOURCES = Path(__file__).parent / "sources"
Unit = Literal["short", "s", "reqps", "percentunit", "percent", "bytes", "celsius", "watt", "sci"]


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    title: str
    unit: Unit
    description: str
    queries: dict[str, str]
    """Legend to expression; `{{label}}` in a legend stands for its value."""
    kind: Literal["timeseries", "stat"] = "timeseries"
    stacked: bool = False
    thresholds: dict[float, str] = {}
    """Lowest value to colour, ascending; the first one is the ground."""
    empty: str = ""
    """When the panel has nothing to show ("without a GPU"); shown in its description."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    title: str
    panels: tuple[Panel, ...]
    height: int = 8
    """In Grafana's grid units of 30 pixels."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: dict[str, str]
    """Name to the query of its values; several may be chosen."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


def read_sources() -> dict[str, Source]:
    """By file name without its ending. Raises msgspec.ValidationError with the place of a mistake."""
    yaml = YAML(typ="safe")
    return {
        path.stem: msgspec.convert(yaml.load(path), Source, str_keys=False)
        for path in sorted(SOURCES.glob("*.yaml"))
    }
