"""deploy/compose, read by docker-compose itself for every set of profiles, and traps that it does not see."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from deploy.checks import beside
from deploy.stack.programs import ROOT

FOLDER = ROOT / "deploy" / "compose"
PROFILES = ("cpu", "gpu", "cpu,monitoring", "gpu,monitoring,trainer,loadtest")
SECRETS = {"CHANGEOVER_CONTROL_TOKEN": "only-for-the-check", "GRAFANA_PASSWORD": "only-for-the-check"}
CONTROL_PORT = 9001
ON_THIS_HOST_ONLY = ("prometheus", "alertmanager", "grafana")

Whole = Mapping[str, Any]


class ComposeRefused(Exception):
    """docker-compose does not take it; the message is its own."""


def read(profiles: str, *files: str) -> Whole:
    """The whole model, as docker-compose understands it. Raises ComposeRefused, ProgramMissing."""
    environment = {**os.environ, **SECRETS, "COMPOSE_PROFILES": profiles}  # noqa: TID251 (passed on)
    names = [part for file in ("compose.yaml", *files) for part in ("-f", str(FOLDER / file))]
    done = beside.run("docker-compose", [*names, "config", "--format", "json"], environment)
    if done.returncode != 0 or done.stderr.strip():
        raise ComposeRefused(f"docker-compose config ({profiles}):\n{done.stderr}")
    whole: Whole = msgspec.json.decode(done.stdout)
    return whole


def services() -> dict[str, Whole]:
    """Every service of every set of profiles, with TLS."""
    found: dict[str, Whole] = {}
    for profiles in PROFILES:
        found |= read(profiles, "compose.tls.yaml")["services"]
    return found


def check() -> tuple[int, list[str]]:
    """How many services there are, and what is wrong with them. Raises ProgramMissing."""
    try:
        for profiles in PROFILES:
            read(profiles)
        everything = services()
    except ComposeRefused as refused:
        return 0, [str(refused)]
    wrong = [f"{name}: {found}" for name, service in everything.items() for found in judge(name, service)]
    return len(everything), wrong


def judge(name: str, service: Whole) -> Iterator[str]:
    """What is wrong with one service."""
    for port in service.get("ports", ()):
        if int(port["target"]) == CONTROL_PORT:
            yield "a control port is on an interface of the host"
        if name in ON_THIS_HOST_ONLY and port.get("host_ip") != "127.0.0.1":
            yield "should be on 127.0.0.1 only"
    image = service.get("image", "")
    if ":" not in image or image.endswith(":latest"):
        yield f"{image or 'its image'} has no version"
    if not service.get("read_only"):
        yield "should have a read-only root"
    if service.get("cap_drop") != ["ALL"] or service.get("privileged"):
        yield "should have no capabilities"
    for other, condition in service.get("depends_on", {}).items():
        if name in ("edge", "gateway") and condition["condition"] != "service_healthy":
            yield f"should wait until {other} is healthy"
    for volume in service.get("volumes", ()):
        ours = volume["type"] == "bind" and not _given_by_user(volume["source"])
        if ours and not Path(volume["source"]).exists():
            yield f"{volume['source']} is not there"


def _given_by_user(source: str) -> bool:
    """Certificates, a training configuration and the receivers' secrets are the operator's."""
    return source.endswith(("/certificates", "/train_config.yaml", "/secrets")) or source == "/"
