"""Grafana's dashboards, without Grafana: structure, expressions, and that they are what sources make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML

from deploy.checks import promql
from deploy.checks.known_metrics import Series
from deploy.grafana.build import COLUMNS, DASHBOARDS, DATASOURCE, dashboard, stale
from deploy.grafana.source import Source, read_sources

PROVISIONING = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "provisioning"
ANY = ".*"
"""What a variable is when all of its values are chosen."""


def expressions(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Panel and expression, as Prometheus gets it when everything is chosen."""
    names = [variable["name"] for variable in model["templating"]["list"]]
    found = [(panel["title"], t["expr"]) for panel in model["panels"] for t in panel.get("targets", ())]
    found += [(a["name"], a["expr"]) for a in model["annotations"]["list"]]
    for name in names:
        found = [(title, expression.replace(f"${name}", ANY)) for title, expression in found]
    return found


def complaints(known: Mapping[str, Series]) -> Iterator[str]:
    yield from (
        f"{name} is not what its source makes: python -m deploy.grafana.build" for name in stale(False)
    )
    sources = read_sources()
    models = {name: dashboard(source) for name, source in sources.items()}
    for key in ("uid", "title"):
        values = [model[key] for model in models.values()]
        yield from (
            f"two dashboards have the {key} {v}" for v in sorted({v for v in values if values.count(v) > 1})
        )
    for name, model in models.items():
        yield from (f"{name}: {text}" for text in _structure(model))
        for title, expression in expressions(model):
            yield from (f"{name}, {title}: {text}" for text in promql.complaints(expression, known))
    yield from _provisioning()


def _structure(model: Mapping[str, Any]) -> Iterator[str]:
    panels: Sequence[Mapping[str, Any]] = model["panels"]
    identities = [panel["id"] for panel in panels]
    if len(set(identities)) < len(identities):
        yield "two panels have one id"
    if not any(variable["type"] == "datasource" for variable in model["templating"]["list"]):
        yield "the data source cannot be chosen"
    for one, other in combinations(panels, 2):
        if _overlap(one["gridPos"], other["gridPos"]):
            yield f"{one['title']} and {other['title']} overlap"
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] < 0 or place["x"] + place["w"] > COLUMNS or place["w"] < 1 or place["h"] < 1:
            yield f"{panel['title']} is not within the {COLUMNS} columns"
        if panel["type"] != "row":
            yield from (f"{panel['title']}: {text}" for text in _content(panel))


def _content(panel: Mapping[str, Any]) -> Iterator[str]:
    if not panel["title"] or not panel["description"].endswith("."):
        yield "has no title, or no sentence that describes it"
    if not panel["fieldConfig"]["defaults"]["unit"]:
        yield "has no unit"
    if not panel["targets"]:
        yield "asks for nothing"
    if panel["datasource"] != DATASOURCE or any(t["datasource"] != DATASOURCE for t in panel["targets"]):
        yield "does not use the data source that is chosen"
    steps = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    if steps[0] is not None or steps[1:] != sorted(steps[1:]):
        yield f"its thresholds do not ascend: {steps}"
    legends = [target["legendFormat"] for target in panel["targets"]]
    if len(set(legends)) < len(legends):
        yield "two of its lines have one name"


def _overlap(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


def _provisioning() -> Iterator[str]:
    """That the files are those that Grafana reads, and that they fit the dashboards."""
    yaml = YAML(typ="safe", pure=True)
    sources: Any = yaml.load(PROVISIONING / "datasources" / "prometheus.yaml")
    providers: Any = yaml.load(PROVISIONING / "dashboards" / "changeover.yaml")
    default = dashboard(Source(uid="", title="", description="", rows=(), variables={}))
    chosen = default["templating"]["list"][0]["current"]["value"]
    if [source["uid"] for source in sources["datasources"]] != [chosen]:
        yield f"provisioning: the data source's uid is not {chosen}, which the dashboards choose"
    if sources["apiVersion"] != 1 or providers["apiVersion"] != 1:
        yield "provisioning: apiVersion is not 1"
    if not all(provider["options"]["path"] for provider in providers["providers"]):
        yield "provisioning: a provider has no path"
    for path in DASHBOARDS.glob("*.json"):
        msgspec.json.decode(path.read_bytes())
