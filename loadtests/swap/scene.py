"""Real engines started by `changeover serve` beside a store, and whatever a run does to them.

Everything lies in one folder; commands are run as a user runs them, and the gateway and the agents are asked
over HTTP. Leaving the block ends all of it.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from loadtests.changeover import command
from loadtests.environment import ROOT
from loadtests.processes import Server, free_ports, start

MODEL = "tiny-llama"
ADMIN = "demo"
START_S = 420.0
CONFIG = "infer_config.yaml"
WEIGHTS = Path(__file__).parents[1] / "publish" / "weights.py"
JSON = dict[str, Any]

_WRITE = "import sys, pathlib, backends.models.tiny as t; t.write_tiny_llama(pathlib.Path(sys.argv[1]))"


class SceneFailed(RuntimeError):
    """Something that the run rests on did not happen; the message says what."""


@dataclass
class Scene:
    """A gateway, its engines and a store."""

    root: Path
    engine_python: Path
    port: int
    server: Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    # The gateway

    def ask(self, method: str, path: str, body: object = None) -> JSON:
        """An admin route. Raises SceneFailed unless it does what is asked."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            content = msgspec.json.encode(body) if body is not None else None
            connection.request(method, path, content, {"authorization": f"Bearer {ADMIN}"})
            answer = connection.getresponse()
            raw = answer.read()
        except OSError as error:
            raise SceneFailed(f"{method} {path}: {error}; {self.server.last_words()}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise SceneFailed(f"{method} {path} answered {answer.status}: {raw[:300].decode()}")
        found: JSON = msgspec.json.decode(raw)
        return found

    def rollouts(self) -> JSON:
        return self.ask("GET", "/admin/rollouts")

    def ended(self, version: int, within_s: float, tell: Callable[[str], None]) -> JSON:
        """The rollout of this version, once it has ended; each of its steps is told."""
        deadline = time.monotonic() + within_s
        told = ""
        while time.monotonic() < deadline:
            shown = self.rollouts()
            record = shown["rollout"]
            if record is not None and record["version"] == version:
                said = f"{record['stage']}: {shown['next']}"
                if said != told:
                    tell(said)
                    told = said
                if record["stage"] in ("promoted", "rolled_back", "refused", "superseded"):
                    return shown
            time.sleep(0.2)
        raise SceneFailed(f"the rollout of version {version} did not end in {within_s:g} s: {told}")

    def settled(self, version: int, within_s: float = 120.0) -> JSON:
        """Until every member serves this version."""
        deadline = time.monotonic() + within_s
        shown: JSON = {}
        while time.monotonic() < deadline:
            shown = self.rollouts()
            members = shown["members"]
            if members and all(
                member["place"] == "at" and member["version"].startswith(f"v{version}-") for member in members
            ):
                return shown
            time.sleep(0.2)
        raise SceneFailed(f"not every member serves version {version}: {shown.get('next')}")

    def counted(self, name: str, *labels: str) -> float:
        """A metric, added up over its series that have these labels (`outcome="ok"`)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        finally:
            connection.close()
        lines = (line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))

    def configure(self, **rollout: object) -> None:
        """Change the rollouts' settings while everything runs. Returns when they were taken over."""
        before = self.counted("changeover_config_reloads_total")
        config = self.root / CONFIG
        settings = msgspec.json.decode(config.read_bytes())
        settings["rollout"] |= rollout
        config.write_bytes(msgspec.json.encode(settings))
        deadline = time.monotonic() + 30
        while self.counted("changeover_config_reloads_total") == before:
            if time.monotonic() > deadline:
                raise SceneFailed("changed settings were not taken over")
            time.sleep(0.1)

    # Checkpoints

    def base(self) -> Path:
        """The weights that the engines were launched with."""
        folder = self.root / "base"
        if not folder.exists():
            folder.mkdir()
            subprocess.run([sys.executable, "-c", _WRITE, str(folder)], check=True, timeout=120, cwd=ROOT)
        return folder

    def perturbed(self, source: Path, name: str, seed: int, scale: float = 0.05) -> Path:
        """Other weights."""
        target = self.root / name
        subprocess.run(
            [
                self.engine_python,
                WEIGHTS,
                "perturb",
                source,
                target,
                *("--seed", str(seed), "--scale", str(scale)),
            ],
            check=True,
            timeout=300,
        )
        return target

    def chain(self, source: Path, count: int) -> list[Path]:
        """So many checkpoints, each made of the one before."""
        target = self.root / "chain"
        subprocess.run(
            [self.engine_python, WEIGHTS, "chain", source, target, "--count", str(count)],
            check=True,
            timeout=600,
        )
        return [target / str(step) for step in range(1, count + 1)]

    def publish(self, folder: Path, step: int, *options: object) -> int:
        """Publish with a probe; the version. Raises SceneFailed with what the command said."""
        done = self.changeover(
            *("publish", folder, "--store", self.store, "--model", MODEL, "--run", "demo", "--json"),
            *("--step", step, "--probe-python", self.engine_python, "--probe-seconds", 0, *options),
        )
        if done.returncode != 0:
            raise SceneFailed((done.stdout + done.stderr).strip())
        return int(msgspec.json.decode(done.stdout)["version"])

    def version_folder(self, version: int) -> Path:
        return self.store / MODEL / "versions" / f"{version:010d}"

    def changeover(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*command(), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
            cwd=ROOT,
        )

    # Agents

    def agent(self, name: str) -> JSON:
        """What the agent of an engine says of it."""
        raw = self._over(self.run_dir / f"{name}.ctl", "GET", "/status")
        found: JSON = msgspec.json.decode(raw)
        return found

    def kill_engine(self, name: str) -> int:
        """`kill -9` of an engine's API server; its process id."""
        pid = self.agent(name)["pid"]
        if pid is None:
            raise SceneFailed(f"{name} has no engine that could be killed")
        os.kill(pid, signal.SIGKILL)
        return int(pid)

    def drain(self, name: str, draining: bool) -> None:
        self._over(self.run_dir / f"{name}.ctl", "POST", "/drain", {"draining": draining})

    def reload(self, name: str, weights: Path) -> float:
        """Seconds of the engine's bare `reload_weights`, nothing around it."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(weights)}}
        began = time.monotonic()
        self._over(self.run_dir / f"{name}.sock", "POST", "/collective_rpc", body)
        return time.monotonic() - began

    def _over(self, path: Path, method: str, route: str, body: object = None) -> bytes:
        connection = _OverSocket(path)
        token = (self.run_dir / "token").read_text().strip()
        headers = {"x-changeover-token": token, "content-type": "application/json"}
        try:
            content = msgspec.json.encode(body) if body is not None else None
            connection.request(method, route, content, headers)
            answer = connection.getresponse()
            raw = answer.read()
        except OSError as error:
            raise SceneFailed(f"{path.name}{route}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise SceneFailed(f"{path.name}{route} answered {answer.status}: {raw[:300].decode()}")
        return raw


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=120)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(self._path)


@contextmanager
def scene(
    root: Path,
    engine_python: Path,
    *,
    replicas: int = 2,
    workers: int = 1,
    cache: str = "off",
    sections: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    **rollout: object,
) -> Iterator[Scene]:
    """Everything started and ready. Raises ServerFailed, SceneFailed.

    `cache`: its type; `rollout`: its settings; `sections`: others, in place of those here; `environment`: of
    all processes.
    """
    (port,) = free_ports(1)
    settings = {
        "server": {"host": "127.0.0.1", "port": port, "settle_s": 0, "drain_s": 2, "workers": workers},
        "engine": {
            "model": MODEL,
            "replicas": replicas,
            "kv_cache_gib": 0.25,
            "max_model_len": 1024,
            "shutdown_timeout_s": 2,
        },
        "run_dir": str(root / "run"),
        "checkpoints": {"store": str(root / "store"), "local": str(root / "local")},
        "rollout": rollout,
        "admin": {"token": ADMIN},
        "cache": {"type": cache},
        "logging": {"requests": False},
        **(sections or {}),
    }
    config = root / CONFIG
    config.write_bytes(msgspec.json.encode(settings))
    server = start("serve", [*command(), "serve", "--config", str(config)], environment=environment)
    made = Scene(root, engine_python, port, server)
    try:
        server.wait_ready(port, "/readyz", START_S)
        _wait_engines(made, replicas)
        yield made
    finally:
        server.stop()


def qualify(root: Path, tell: Callable[[str], None]) -> None:
    """Show that engines like these may be reloaded in place; without it, swaps are restarts."""
    settings = {
        "engine": {"model": MODEL, "kv_cache_gib": 0.25, "max_model_len": 1024, "shutdown_timeout_s": 2},
        "run_dir": str(root / "qualify"),
    }
    config = root / "qualify.yaml"
    config.write_bytes(msgspec.json.encode(settings))
    done = subprocess.run(
        [*command(), "qualify", "--config", str(config), "--store", str(root / "store"), "--name", MODEL],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=ROOT,
    )
    for line in (done.stdout + done.stderr).strip().splitlines()[-4:]:
        tell(line)


def _wait_engines(made: Scene, replicas: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        members = made.rollouts()["members"]
        if len(members) == replicas and all(member["state"] == "ready" for member in members):
            return
        time.sleep(0.3)
    raise SceneFailed(f"not all engines became ready: {made.server.last_words()}")
