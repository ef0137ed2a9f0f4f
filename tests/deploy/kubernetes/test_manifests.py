"""The manifests as kustomize builds them: judged by schemas, and by what operators learnt the hard way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy.checks.manifests import FOLDER, build, builds, judge
from deploy.checks.traps import traps
from gateway.settings.load import load
from training.config.command_line import parse_arguments
from training.config.load import load as load_training

NAMES = [folder.name for folder in builds()]
Manifests = list[dict[str, Any]]


@cache
def built(name: str) -> Manifests:
    folder = next(folder for folder in builds() if folder.name == name)
    return [dict(manifest) for manifest in build(folder)]


def find(name: str, kind: str, called: str) -> dict[str, Any]:
    return next(m for m in built(name) if m["kind"] == kind and m["metadata"]["name"] == called)


def seconds_to_end(workload: dict[str, Any]) -> int:
    return int(workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def test_there_is_an_overlay_for_every_way_to_run_it() -> None:
    assert NAMES == ["base", "cpu", "gpu", "istio", "keda", "multinode", "spot", "training"]


@pytest.mark.parametrize("name", NAMES)
def test_every_build_is_valid_and_free_of_traps(name: str) -> None:
    wrong = [complaint for manifest in built(name) for complaint in judge(manifest)]
    assert wrong == []
    assert list(traps(built(name))) == []


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("*-config.yaml")), ids=lambda path: str(path.parent.name)
)
def test_every_configuration_is_one_that_its_program_takes(path: Path) -> None:
    if path.name == "train-config.yaml":
        load_training(parse_arguments(["--config", str(path)]), {})
        return
    settings = load(path, environment={}).settings
    if path.name == "gateway-config.yaml":
        assert all(model.engine is None and model.endpoints for model in settings.served_models())
    else:
        assert settings.engine.replicas == 1
        assert settings.served_models()[0].name == "smollm2-135m-instruct"


def test_a_gateway_has_the_time_that_its_streams_may_need() -> None:
    settings = load(FOLDER / "base" / "gateway-config.yaml", environment={}).settings
    grace = seconds_to_end(find("base", "Deployment", "gateway"))
    engines = seconds_to_end(find("base", "StatefulSet", "engine"))
    assert grace > settings.server.settle_s + settings.server.drain_s
    assert grace >= engines
    assert seconds_to_end(find("base", "Deployment", "edge")) >= grace


def test_an_engine_has_the_time_that_its_requests_may_need() -> None:
    settings = load(FOLDER / "base" / "engine-config.yaml", environment={}).settings
    assert seconds_to_end(find("base", "StatefulSet", "engine")) > settings.engine.shutdown_timeout_s
    spot = load(FOLDER / "overlays" / "spot" / "engines" / "engine-config.yaml", environment={}).settings
    grace = seconds_to_end(find("spot", "StatefulSet", "engine-spot"))
    assert spot.engine.shutdown_timeout_s < grace <= 30, "a spot node's notice"


def test_no_model_hangs_on_spot_nodes_alone() -> None:
    stable = find("spot", "StatefulSet", "engine")["spec"]["template"]["spec"]
    assert "DoesNotExist" in str(stable["affinity"])
    assert find("spot", "StatefulSet", "engine")["spec"]["replicas"] >= 2


def test_loading_has_a_budget_of_its_own() -> None:
    probe = find("base", "StatefulSet", "engine")["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    settings = load(FOLDER / "overlays" / "gpu" / "engine-config.yaml", environment={}).settings
    assert probe["periodSeconds"] * probe["failureThreshold"] >= settings.engine.start_timeout_s


def test_gpus_asked_for_are_those_that_the_engine_uses() -> None:
    container = find("gpu", "StatefulSet", "engine")["spec"]["template"]["spec"]["containers"][0]
    settings = load(FOLDER / "overlays" / "gpu" / "engine-config.yaml", environment={}).settings
    assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == settings.engine.tensor_parallel_size


def test_a_group_of_nodes_has_as_many_gpus_as_the_model_is_split_over() -> None:
    group = find("multinode", "LeaderWorkerSet", "engine")["spec"]["leaderWorkerTemplate"]
    settings = load(FOLDER / "overlays" / "multinode" / "engine-config.yaml", environment={}).settings
    worker = group["workerTemplate"]["spec"]["containers"][0]
    gpus = int(worker["resources"]["limits"]["nvidia.com/gpu"]) * group["size"]
    assert gpus == settings.engine.tensor_parallel_size
    assert f"--tensor-parallel-size={gpus}" in worker["args"]
    assert settings.engine.model in worker["command"]
    assert find("multinode", "Service", "engines")["spec"]["selector"]["changeover/role"] == "leader"


def test_requests_are_held_while_the_first_engine_of_the_morning_starts() -> None:
    settings = load(FOLDER / "overlays" / "keda" / "gateway-config.yaml", environment={}).settings
    probe = find("keda", "StatefulSet", "engine")["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    scaled = find("keda", "ScaledObject", "engine")["spec"]
    assert scaled["minReplicaCount"] == 0
    assert "changeover_queued" in str(scaled["triggers"]), "without engines only the queue tells of load"
    assert settings.limits.max_queue_s <= settings.timeouts.total_s
    assert settings.limits.max_queue_s > probe["periodSeconds"] * probe["failureThreshold"] * 0.8
    values = next(m for m in built("keda") if m["metadata"]["name"].startswith("edge-values"))
    assert int(values["data"]["EDGE_READ_TIMEOUT"].removesuffix("s")) > settings.timeouts.total_s


def test_each_rank_of_a_training_knows_its_number_and_where_to_meet() -> None:
    job = find("training", "Job", "trainer")["spec"]
    container = job["template"]["spec"]["containers"][0]
    assert job["completionMode"] == "Indexed"
    assert container["env"][0]["name"] == "NODE_RANK"
    assert f"--nnodes={job['completions']}" in container["args"]
    assert job["template"]["spec"]["subdomain"] == "trainer"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_gateways_may_read_endpointslices_and_nothing_else() -> None:
    roles = [manifest for manifest in built("gpu") if manifest["kind"] in ("Role", "ClusterRole")]
    assert [role["rules"] for role in roles] == [
        [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    ]
    assert not any(manifest["kind"] in ("Role", "ClusterRole") for manifest in built("base"))


Spoil = Callable[[dict[str, Any]], object]


def _pod(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("kind", "called", "spoil", "said"),
    [
        ("StatefulSet", "engine", lambda m: _pod(m).pop("enableServiceLinks"), "enableServiceLinks"),
        ("StatefulSet", "engine", lambda m: _pod(m).pop("automountServiceAccountToken"), "token"),
        ("StatefulSet", "engine", lambda m: _pod(m).pop("securityContext"), "no root"),
        ("Deployment", "gateway", lambda m: _pod(m)["containers"][0].pop("livenessProbe"), "livenessProbe"),
        ("Deployment", "gateway", lambda m: m["spec"].update(replicas=3), "autoscaler"),
        (
            "Deployment",
            "gateway",
            lambda m: _pod(m)["containers"][0]["resources"]["limits"].update(cpu="2"),
            "throttled",
        ),
        (
            "Deployment",
            "gateway",
            lambda m: _pod(m)["containers"][0].update(image="changeover/gateway"),
            "no version",
        ),
        ("PodDisruptionBudget", "engine", lambda m: m["spec"].update(maxUnavailable=0), "should be 1"),
        ("StatefulSet", "engine", lambda m: m["spec"].update(replicas=1), "never be drained"),
        ("Service", "valkey", lambda m: m["spec"].update(selector={"app": "redis"}), "selects no pod"),
        ("NetworkPolicy", "engine", lambda m: m["spec"]["ingress"][0].pop("from"), "only gateways"),
    ],
)
def test_a_trap_that_is_stepped_into_is_said(kind: str, called: str, spoil: Spoil, said: str) -> None:
    manifests = copy.deepcopy(built("base"))
    spoil(next(m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == called))
    assert any(said in complaint for complaint in traps(manifests))


def test_a_misspelt_field_is_said() -> None:
    deployment = copy.deepcopy(find("base", "Deployment", "gateway"))
    deployment["spec"]["minReadySecond"] = 1
    assert any("minReadySecond" in complaint for complaint in judge(deployment))
    scaled = copy.deepcopy(find("keda", "ScaledObject", "engine"))
    scaled["spec"]["coolDownPeriod"] = 1
    assert any("coolDownPeriod" in complaint for complaint in judge(scaled))


def test_a_misspelt_field_in_the_pods_of_a_custom_resource_is_said() -> None:
    group = copy.deepcopy(find("multinode", "LeaderWorkerSet", "engine"))
    group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["container"] = []
    assert any("container" in complaint for complaint in judge(group))


def test_an_unknown_kind_is_not_passed_over() -> None:
    unknown = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {}}
    assert any("no schema" in complaint for complaint in judge(unknown))
