"""The product under test, as commands: gateway, fake engines, real engines.

Configurations are written as JSON (which is YAML) into a folder of the run. The command is the project's
own environment's if it is there, else the modules with the Python that runs this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from loadtests.environment import ROOT
from loadtests.processes import Server, free_ports, running, start

Settings = dict[str, Any]

ENGINE_START_S = 300.0


def command() -> list[str]:
    """How `changeover` is called here."""
    script = ROOT / ".venv" / "bin" / "changeover"
    return [str(script)] if script.exists() else [sys.executable, "-m", "gateway"]


def python() -> str:
    """The interpreter of the project's environment."""
    found = ROOT / ".venv" / "bin" / "python"
    return str(found) if found.exists() else sys.executable


@contextmanager
def gateway(
    settings: Settings, *, name: str = "gateway", core: int | None = None
) -> Iterator[tuple[Server, int]]:
    """A gateway on a free port with these settings: the server and its port."""
    (port,) = free_ports(1)
    server = {"host": "127.0.0.1", "settle_s": 0, "drain_s": 1, **settings.get("server", {}), "port": port}
    with TemporaryDirectory(prefix="load-") as folder:
        config = _write(Path(folder), {**settings, "server": server, "run_dir": f"{folder}/run"})
        argv = [*command(), "gateway", "--config", str(config)]
        with running(name, argv, port=port, path="/readyz", core=core) as process:
            yield process, port


@contextmanager
def fakes(behaviours: Sequence[Settings], *, core: int | None = None) -> Iterator[list[int]]:
    """Fake engines, one for each behaviour: their ports."""
    ports = free_ports(len(behaviours))
    with ExitStack() as stack:
        for index, (port, behaviour) in enumerate(zip(ports, behaviours, strict=True)):
            said = msgspec.json.encode(behaviour).decode()
            argv = [python(), "-m", "backends.fake", "--port", str(port), "--behaviour", said]
            stack.enter_context(running(f"fake-{index}", argv, port=port, core=core))
        yield ports


@contextmanager
def engines(settings: Settings, count: int) -> Iterator[list[int]]:
    """Real engines with these `engine` settings, each under its keeper: their ports."""
    ports = free_ports(count)
    with TemporaryDirectory(prefix="load-") as folder, ExitStack() as stack:
        chosen = {"engine": {**settings, "replicas": count}, "run_dir": f"{folder}/run"}
        argv = [*command(), "backend", "--config", str(_write(Path(folder), chosen))]
        started = []
        for index, port in enumerate(ports):
            server = start(f"engine-{index}", [*argv, "--index", str(index), "--port", str(port)])
            stack.callback(server.stop)
            started.append((server, port))
        for server, port in started:
            server.wait_ready(port, within_s=ENGINE_START_S)
        yield ports


def urls(ports: Sequence[int]) -> list[str]:
    """Addresses as the gateway's `endpoints` want them."""
    return [f"http://127.0.0.1:{port}" for port in ports]


def _write(folder: Path, settings: Settings) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(msgspec.json.encode(settings))
    return path
