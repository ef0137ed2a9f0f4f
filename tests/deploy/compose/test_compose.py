"""compose.yaml as docker-compose understands it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.checks import compose
from deploy.checks.compose import FOLDER, PROFILES, judge, read
from gateway.settings.load import load


def seconds(text: str) -> float:
    """Of docker-compose's `1m15s`."""
    minutes, _, rest = text.rpartition("m")
    return float(minutes or 0) * 60 + float(rest.removesuffix("s") or 0)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return {name: dict(service) for name, service in compose.services().items()}


def test_docker_compose_takes_it_with_every_set_of_profiles() -> None:
    count, wrong = compose.check()
    assert wrong == []
    assert count >= 11


def test_without_gpus_the_engines_run_on_cpu_and_with_them_they_share_two() -> None:
    assert {"engine", "gateway", "edge", "valkey"} == set(read("cpu")["services"])
    gpu = read("gpu")["services"]
    assert "engine" not in gpu
    reserved = gpu["engine-gpu"]["deploy"]["resources"]["reservations"]["devices"][0]
    settings = load(FOLDER / "engine-gpu.yaml", environment={}).settings
    assert reserved["count"] == settings.engine.tensor_parallel_size == 2
    assert int(gpu["engine-gpu"]["shm_size"]) >= 8 * 1024**3


def test_only_nginx_is_reached_from_other_machines(services: dict[str, Any]) -> None:
    open_ports = {
        (name, port["target"])
        for name, service in services.items()
        for port in service.get("ports", ())
        if port.get("host_ip") != "127.0.0.1"
    }
    assert open_ports == {("edge", 8080), ("edge", 8443)}


def test_everybody_has_the_time_to_end_that_it_may_need(services: dict[str, Any]) -> None:
    gateway = load(FOLDER / "gateway.yaml", environment={}).settings
    leaving = gateway.server.settle_s + gateway.server.drain_s
    assert seconds(services["gateway"]["stop_grace_period"]) > leaving
    assert seconds(services["edge"]["stop_grace_period"]) > leaving
    for name in ("engine", "engine-gpu"):
        engine = load(FOLDER / f"{name}.yaml", environment={}).settings.engine
        assert seconds(services[name]["stop_grace_period"]) > engine.shutdown_timeout_s
        assert leaving >= engine.shutdown_timeout_s


def test_they_start_one_after_the_other_by_health(services: dict[str, Any]) -> None:
    assert services["edge"]["depends_on"]["gateway"]["condition"] == "service_healthy"
    assert set(services["gateway"]["depends_on"]) <= {"engine", "engine-gpu", "valkey"}
    for name in ("gateway", "engine", "engine-gpu", "valkey", "edge"):
        assert services[name]["healthcheck"]["test"][0] == "CMD", "no shell, no curl"


def test_the_gateways_find_the_engines_and_the_cache(services: dict[str, Any]) -> None:
    settings = load(FOLDER / "gateway.yaml", environment={}).settings
    endpoint = settings.served_models()[0].endpoints[0]
    assert endpoint.url == "dns://engines:8000"
    assert endpoint.control_port == compose.CONTROL_PORT
    assert settings.cache.host in services
    for name in ("engine", "engine-gpu"):
        assert "engines" in services[name]["networks"]["engines"]["aliases"]
        engine = load(FOLDER / f"{name}.yaml", environment={}).settings.served_models()[0]
        assert engine.name == settings.served_models()[0].name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ports": [{"target": 9001}]}, "control port"),
        ({"image": "valkey/valkey"}, "no version"),
        ({"image": "valkey/valkey:latest"}, "no version"),
        ({"read_only": False}, "read-only"),
        ({"cap_drop": []}, "capabilities"),
        ({"depends_on": {"valkey": {"condition": "service_started"}}}, "healthy"),
        ({"volumes": [{"type": "bind", "source": "/nowhere/at/all"}]}, "not there"),
    ],
)
def test_traps_that_docker_compose_does_not_see_are_said(change: dict[str, Any], said: str) -> None:
    good = {"image": "a:1.0", "read_only": True, "cap_drop": ["ALL"]}
    assert list(judge("gateway", good)) == []
    assert any(said in complaint for complaint in judge("gateway", {**good, **change}))


def test_every_profile_is_tried() -> None:
    asked = {profile for profiles in PROFILES for profile in profiles.split(",")}
    text = Path(FOLDER / "compose.yaml").read_text()
    for line in text.splitlines():
        if "profiles:" in line:
            assert line.partition("[")[2].rstrip("]") in asked
