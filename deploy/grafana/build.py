"""Makes dashboards/*.json, which Grafana is provisioned with, from sources/*.yaml. Pure but for the files.

python -m deploy.grafana.build            write them
python -m deploy.grafana.build --check    only say whether they are what the sources make
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from deploy.grafana.source import Panel, Row, Source, read_sources

DASHBOARDS = Path(__file__).parent / "dashboards"
COLUMNS = 24
SCHEMA = 39
"""Of Grafana 11; later ones migrate it when they load it."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(source: Source) -> dict[str, Any]:
    """What Grafana's API calls the dashboard model."""
    return {
        "uid": source.uid,
        "title": source.title,
        "description": source.description,
        "tags": ["changeover"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), *(_variable(*item) for item in source.variables.items())]},
        "annotations": {"list": [_annotation()]},
        "links": [_links()],
        "panels": list(_panels(source.rows)),
    }


def encode(source: Source) -> bytes:
    """The file, the same bytes each time."""
    return msgspec.json.format(msgspec.json.encode(dashboard(source)), indent=2) + b"\n"


def _panels(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        number, top, left = number + 1, top + 1, 0
        for width, panel in zip(_widths(len(row.panels)), row.panels, strict=True):
            place = {"x": left, "y": top, "w": width, "h": row.height}
            yield _panel(panel) | {"id": number, "gridPos": place}
            number, left = number + 1, left + width
        top += row.height


def _widths(count: int) -> list[int]:
    """As equal as whole columns allow."""
    width, wider = divmod(COLUMNS, count)
    return [width + 1] * wider + [width] * (count - wider)


def _panel(panel: Panel) -> dict[str, Any]:
    empty = f" Empty {panel.empty}." if panel.empty else ""
    options, custom = _stat() if panel.kind == "stat" else _timeseries(panel)
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description + empty,
        "datasource": DATASOURCE,
        "targets": [
            {"refId": chr(65 + i), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
            for i, (legend, expr) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0 if panel.unit != "sci" else None,
                "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": _steps(panel)},
                "custom": custom,
            },
            "overrides": [],
        },
        "options": options,
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    steps = list((panel.thresholds or {0.0: "blue"}).items())
    return [{"color": steps[0][1], "value": None}, *({"color": c, "value": v} for v, c in steps[1:])]


def _stat() -> tuple[dict[str, Any], dict[str, Any]]:
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "area",
        "textMode": "auto",
    }
    return options, {}


def _timeseries(panel: Panel) -> tuple[dict[str, Any], dict[str, Any]]:
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    custom = {
        "lineWidth": 1,
        "fillOpacity": 30 if panel.stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
    }
    return options, custom


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "changeover-prometheus"},
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def _annotation() -> dict[str, Any]:
    return {
        "name": "Rollouts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "purple",
        "expr": "sum by (model, outcome) (increase(changeover_rollout_outcomes_total[1m])) > 0",
        "step": "60s",
        "titleFormat": "{{model}} {{outcome}}",
    }


def _links() -> dict[str, Any]:
    return {"type": "dashboards", "title": "Changeover", "tags": ["changeover"], "asDropdown": True}


def stale(write: bool) -> list[str]:
    """Files that are not what the sources make; brought up to date if told to, left-over ones removed."""
    wanted = {DASHBOARDS / f"{name}.json": encode(source) for name, source in read_sources().items()}
    found = {path: path.read_bytes() for path in DASHBOARDS.glob("*.json")}
    differ = [path for path in sorted({*wanted, *found}) if wanted.get(path) != found.get(path)]
    for path in differ if write else ():
        if path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(wanted[path])
        else:
            path.unlink()
    return [path.name for path in differ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.grafana.build", description="Make the dashboards."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if something would change"
    )
    check = parser.parse_args().check
    changed = stale(write=not check)
    for name in changed:
        print(f"{name}: {'is not what its source makes' if check else 'written'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
