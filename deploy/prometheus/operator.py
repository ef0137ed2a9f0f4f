"""Makes the PrometheusRule that the Prometheus operator reads, of the rules that Prometheus itself reads.

    python -m deploy.prometheus.operator [--check]

One source for both: deploy/prometheus/rules. `--check` writes nothing and exits 1 if it would change.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
RULES = Path(__file__).parent / "rules"
MANIFEST = ROOT / "deploy" / "kubernetes" / "components" / "monitoring" / "rules.yaml"
HEAD = "# Made by `python -m deploy.prometheus.operator` of deploy/prometheus/rules: edit those.\n"


def manifest() -> str:
    """The file, the same text each time."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    groups: list[dict[str, Any]] = [
        group for path in sorted(RULES.glob("*.yaml")) for group in yaml.load(path)["groups"]
    ]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "changeover", "labels": {"release": "prometheus"}},
        "spec": {"groups": groups},
    }
    text = io.StringIO()
    yaml.dump(resource, text)
    return HEAD + text.getvalue()


def stale() -> bool:
    """Whether the manifest is not what the rules make."""
    return not MANIFEST.exists() or MANIFEST.read_text() != manifest()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.prometheus.operator", description="Make the manifest."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it would change")
    if parser.parse_args().check:
        return int(stale())
    MANIFEST.write_text(manifest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
