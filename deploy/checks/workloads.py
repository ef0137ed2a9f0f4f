"""Where pods stand in workloads of any kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Manifest = Mapping[str, Any]


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def pod_templates(manifest: Manifest) -> Iterator[tuple[str, Manifest]]:
    """The pod templates of a manifest, with where they stand."""
    spec = manifest.get("spec") or {}
    group = spec.get("leaderWorkerTemplate") or {}
    found = {
        "template": spec.get("template"),
        "leaderTemplate": group.get("leaderTemplate"),
        "workerTemplate": group.get("workerTemplate"),
        "jobTargetRef": (spec.get("jobTargetRef") or {}).get("template"),
    }
    for where, template in found.items():
        if template and "containers" in template.get("spec", {}):
            yield where, template
