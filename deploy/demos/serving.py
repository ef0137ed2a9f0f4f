"""`changeover serve` for a demonstration: an engine or two and a gateway in a folder of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import msgspec

from backends.leash import leashed

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 600.0
END_LIMIT_S = 60.0
LEASH_S = 5.0
"""After END_LIMIT_S the leash kills what is left; that takes a moment."""


class DemoFailed(Exception):
    """The demonstration did not show what it should; the message says where to look."""


@dataclass(frozen=True)
class Serving:
    """A gateway that answers."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def complete(self, prompt: str, tokens: int) -> tuple[str, str]:
        """The greedy answer, and the version of the weights that gave it."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
        answer = httpx2.post(f"{self.url}/v1/completions", json=body, timeout=120, trust_env=False)
        if answer.status_code != 200:
            raise DemoFailed(f"the gateway answered {answer.status_code}: {answer.text[:300]}")
        return str(answer.json()["choices"][0]["text"]), answer.headers.get("x-model-version", "")

    def wait(self, holds: Callable[[], bool], limit_s: float, what: str) -> None:
        """Until it holds. Raises DemoFailed when the time is up, or the process has ended."""
        deadline = time.monotonic() + limit_s
        while not holds():
            if self.process.poll() is not None:
                raise DemoFailed(f"`changeover serve` ended:\n{self.log.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"{what} did not happen within {limit_s:.0f} s; see {self.log}")
            time.sleep(0.5)

    def ready(self) -> bool:
        """Whether it takes requests."""
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False


def write_settings(
    folder: Path, model: str, replicas: int, store: Path, more: Mapping[str, object] | None = None
) -> Path:
    """infer_config.yaml of the demonstration, with sections added or replaced."""
    config = folder / "infer_config.yaml"
    settings = {
        "engine": {"model": model, "replicas": replicas, "kv_cache_gib": 0.25},
        "checkpoints": {"store": str(store), "local": str(folder / "local")},
        "server": {"port": _free_port()},
        "run_dir": str(folder / "run"),
        **(more or {}),
    }
    config.write_bytes(msgspec.json.encode(settings))
    return config


@contextmanager
def serving(config: Path) -> Iterator[Serving]:
    """Start it, wait until it is ready, and end it with everything that it started."""
    log = config.with_name("serve.log")
    command = leashed(
        (sys.executable, "-m", "gateway", "serve", "--config", str(config)), grace_s=END_LIMIT_S
    )
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        port = msgspec.json.decode(config.read_bytes())["server"]["port"]
        found = Serving(f"http://127.0.0.1:{port}", log, process)
        try:
            found.wait(found.ready, START_LIMIT_S, "the start of the engines")
            yield found
        finally:
            process.terminate()
            try:
                process.wait(END_LIMIT_S + LEASH_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
