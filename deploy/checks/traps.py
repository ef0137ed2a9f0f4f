"""What schemas let pass and operators regret: pure judgements of the manifests of one build.

Each rule is a function of all manifests. The reasons are in docs/kubernetes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from deploy.checks.workloads import Manifest, name_of, pod_templates

Rule = Callable[[Sequence[Manifest]], Iterator[str]]

ALWAYS_READY = ("worker", "trainer")
"""Containers that answer nobody: no probes."""
WITHOUT_CPU_LIMIT = ("gateway", "nginx")
AUTOSCALERS = {"HorizontalPodAutoscaler", "ScaledObject"}


def traps(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Everything that every rule has to say."""
    for rule in RULES:
        yield from rule(manifests)


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every pod template with the name of its workload."""
    for manifest in manifests:
        for _, template in pod_templates(manifest):
            yield name_of(manifest), template


def _containers(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for name, template in pods(manifests):
        for container in template["spec"]["containers"]:
            yield f"{name}, container {container['name']}", container


def _pods_are_hardened(manifests: Sequence[Manifest]) -> Iterator[str]:
    token_readers = {
        subject["name"]
        for manifest in manifests
        if manifest["kind"] == "RoleBinding"
        for subject in manifest["subjects"]
    }
    for name, template in pods(manifests):
        spec = template["spec"]
        if spec.get("enableServiceLinks") is not False:
            yield f"{name}: enableServiceLinks should be false (a Service `vllm` would set VLLM_PORT)"
        mounts = spec.get("automountServiceAccountToken") is not False
        if mounts and spec.get("serviceAccountName") not in token_readers:
            yield f"{name}: mounts a token that it has no use for"
        security = spec.get("securityContext", {})
        if security.get("runAsNonRoot") is not True or security.get("seccompProfile") is None:
            yield f"{name}: should run as no root, with a seccomp profile"
    for name, container in _containers(manifests):
        security = container.get("securityContext", {})
        if security.get("readOnlyRootFilesystem") is not True:
            yield f"{name}: should have a read-only root"
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: may gain privileges"
        if security.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{name}: should drop all capabilities"


def _containers_are_bounded(manifests: Sequence[Manifest]) -> Iterator[str]:
    for name, container in _containers(manifests):
        resources = container.get("resources", {})
        requests, limits = resources.get("requests", {}), resources.get("limits", {})
        if not {"cpu", "memory"} <= requests.keys() or "memory" not in limits:
            yield f"{name}: needs requests of CPU and memory, and a limit of memory"
        if container["name"] in WITHOUT_CPU_LIMIT and "cpu" in limits:
            yield f"{name}: a proxy that is throttled is late with every stream: no limit of CPU"
        tag = container["image"].rpartition(":")[2]
        if not any(sign.isdigit() for sign in tag) or "/" in tag:
            yield f"{name}: {container['image']} has no version"


def _containers_are_probed(manifests: Sequence[Manifest]) -> Iterator[str]:
    for name, container in _containers(manifests):
        if container["name"] in ALWAYS_READY:
            continue
        for probe in ("readinessProbe", "livenessProbe"):
            if probe not in container:
                yield f"{name}: no {probe}"
        liveness = container.get("livenessProbe", {})
        if "/readyz" in str(liveness):
            yield f"{name}: what it depends on should not get it killed: liveness is not readiness"
        if liveness.get("failureThreshold", 3) * liveness.get("periodSeconds", 10) < 60:
            yield f"{name}: liveness should take a minute or more: who is busy answers late"


def _disruptions_are_bounded(manifests: Sequence[Manifest]) -> Iterator[str]:
    replicas = {
        manifest["metadata"]["name"]: manifest["spec"].get("replicas")
        for manifest in manifests
        if manifest["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet")
    }
    budgets = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "PodDisruptionBudget"}
    for name, budget in budgets.items():
        if budget["spec"].get("maxUnavailable") != 1:
            yield f"PodDisruptionBudget {name}: maxUnavailable should be 1"
        if replicas.get(name) == 1:
            yield f"PodDisruptionBudget {name}: with one replica its node could never be drained"
    for name, wanted in replicas.items():
        # The budget of the engines holds for those on spot nodes too: it selects both.
        if wanted is not None and wanted > 1 and name.removesuffix("-spot") not in budgets:
            yield f"{name}: {wanted} replicas and no PodDisruptionBudget"


def _one_owner_of_replicas(manifests: Sequence[Manifest]) -> Iterator[str]:
    owned = {
        manifest["spec"]["scaleTargetRef"]["name"]
        for manifest in manifests
        if manifest["kind"] in AUTOSCALERS
    }
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        scaled = manifest["kind"] in ("Deployment", "StatefulSet") and name in owned
        if scaled and "replicas" in manifest["spec"]:
            yield f"{name}: an autoscaler owns its replicas, each apply would set them back"


def _gpus_do_not_surge(manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        if "nvidia.com/gpu" not in str(manifest.get("spec")):
            continue
        rolling = manifest["spec"].get("strategy", {}).get("rollingUpdate", {})
        group = manifest["spec"].get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {})
        surges = manifest["kind"] == "Deployment" and rolling.get("maxSurge", 1) != 0
        if surges or group.get("maxSurge", 0) != 0:
            yield f"{manifest['metadata']['name']}: a surge would need a spare GPU"


def _names_exist(manifests: Sequence[Manifest]) -> Iterator[str]:
    """ConfigMaps, accounts and claims that pods name; pods that Services, budgets and policies select."""
    there = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    namespaced = any(kind == "Namespace" for kind, _ in there)
    for name, template in pods(manifests):
        for volume in template["spec"].get("volumes", ()):
            source = volume.get("configMap")
            if source and ("ConfigMap", source["name"]) not in there:
                yield f"{name}: there is no ConfigMap {source['name']}"
        account = template["spec"].get("serviceAccountName")
        if namespaced and account and ("ServiceAccount", account) not in there:
            yield f"{name}: there is no ServiceAccount {account}"
    labels = [template.get("metadata", {}).get("labels", {}) for _, template in pods(manifests)]
    for manifest in manifests:
        selector = manifest["spec"].get("selector") if "spec" in manifest else None
        if manifest["kind"] == "Service" and not any(_matches(selector or {}, found) for found in labels):
            yield f"Service {manifest['metadata']['name']}: selects no pod of this build"


def _matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def _control_ports_are_closed(manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        if manifest["kind"] != "NetworkPolicy":
            continue
        for rule in manifest["spec"].get("ingress", ()):
            ports = {port["port"] for port in rule.get("ports", ())}
            if "control" not in ports:
                continue
            allowed = [source.get("podSelector", {}).get("matchLabels") for source in rule.get("from", ())]
            if allowed != [{"app.kubernetes.io/name": "gateway"}]:
                yield f"NetworkPolicy {manifest['metadata']['name']}: only gateways may reach control ports"


def _streams_are_let_be(manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        if manifest["kind"] != "VirtualService":
            continue
        for route in manifest["spec"]["http"]:
            if sum(part["weight"] for part in route["route"]) != 100:
                yield f"VirtualService route {route['name']}: weights should add up to 100"
            work = any("/v1/" in str(match) or "/predict" in str(match) for match in route["match"])
            if work and (route["timeout"] != "0s" or route["retries"]["attempts"] != 0):
                yield f"VirtualService route {route['name']}: no timeout on streams, no retry of a POST"


RULES: tuple[Rule, ...] = (
    _pods_are_hardened,
    _containers_are_bounded,
    _containers_are_probed,
    _disruptions_are_bounded,
    _one_owner_of_replicas,
    _gpus_do_not_surge,
    _names_exist,
    _control_ports_are_closed,
    _streams_are_let_be,
)
