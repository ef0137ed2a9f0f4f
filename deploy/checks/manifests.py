"""deploy/kubernetes: built by `kubectl kustomize`, judged by schemas (strict) and by what experience teaches.

Kubernetes' own kinds are judged by its OpenAPI schemas (kubernetes-validate), custom resources by
custom_resources.yaml, the pods in them by Kubernetes' own again.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from ruamel.yaml import YAML

from deploy.checks.traps import traps
from deploy.checks.workloads import Manifest, name_of, pod_templates
from deploy.stack.programs import ROOT, ProgramMissing

FOLDER = ROOT / "deploy" / "kubernetes"
KUBERNETES = "1.37"
LIMIT_S = 60


def builds() -> list[Path]:
    """Whatever an operator may apply."""
    return [FOLDER / "base", *sorted(path.parent for path in FOLDER.glob("overlays/*/kustomization.yaml"))]


class NotBuilt(Exception):
    """kustomize refuses it; the message is its own."""


def build(folder: Path) -> list[Manifest]:
    """The manifests of one folder. Raises NotBuilt, ProgramMissing."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ProgramMissing("kubectl is not on PATH: https://kubernetes.io/docs/tasks/tools/")
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0 or done.stderr.strip():
        raise NotBuilt(done.stderr.strip())
    return [manifest for manifest in YAML(typ="safe").load_all(done.stdout) if manifest]


def check() -> tuple[int, list[str]]:
    """How many manifests there are in all builds, and what is wrong with them. Raises ProgramMissing."""
    counted, wrong = 0, []
    for folder in builds():
        try:
            manifests = build(folder)
        except NotBuilt as refused:
            wrong.append(f"{folder.name}: kustomize: {refused}")
            continue
        counted += len(manifests)
        for manifest in manifests:
            wrong += [f"{folder.name}: {name_of(manifest)}: {found}" for found in judge(manifest)]
        wrong += [f"{folder.name}: {found}" for found in traps(manifests)]
    return counted, wrong


@cache
def custom_schemas() -> Mapping[str, Any]:
    """Schemas by `group/version/kind`, and `definitions`."""
    schemas: Mapping[str, Any] = YAML(typ="safe").load(FOLDER.parent / "checks" / "custom_resources.yaml")
    return schemas


def judge(manifest: Manifest) -> Iterator[str]:
    """What its schema says against one manifest."""
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    schemas = custom_schemas()
    if kind in schemas:
        schema = {**schemas[kind], "type": "object", "definitions": schemas["definitions"]}
        for error in jsonschema.Draft7Validator(schema).iter_errors(manifest["spec"]):
            yield f"spec.{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for where, template in pod_templates(manifest):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
            for complaint in _by_kubernetes(pod):
                yield f"{where}: {complaint}"
    else:
        yield from _by_kubernetes(manifest)


def _by_kubernetes(manifest: Manifest) -> Iterator[str]:
    try:
        kubernetes_validate.validate(dict(manifest), KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"no schema for {manifest['apiVersion']} {manifest['kind']}: write one (custom_resources.yaml)"
