"""Real vLLM engines for tests: started once for the whole session, the way a user would start them.

Ask for the fixture `tiny_engines` and mark the test `@pytest.mark.engine`. The engines serve `tiny-llama`
on Unix sockets; point a gateway's `run_dir` and `engine.replicas` at them, or ask them directly. A test
that kills, drains or swaps one leaves it ready again (`wait_ready`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import msgspec
import pytest

from backends.contract import TOKEN_HEADER, BackendStatus, State
from backends.layout import Place, places
from backends.leash import leashed
from backends.rundir import read_token
from backends.settings import Device
from backends.vllm.install import EngineMissing, find_engine

ROOT = Path(__file__).resolve().parents[1]
MODEL = "tiny-llama"
REPLICAS = 2
START_LIMIT_S = 400
"""For engines that start at once on two cores, with tests running beside them."""


@dataclass(frozen=True)
class EngineUnderTest:
    """One engine and its agent, both real."""

    place: Place
    run_dir: Path
    agent: subprocess.Popen[bytes]

    @property
    def token(self) -> str:
        return read_token(self.run_dir)

    def http(self, *, control: bool = False, token: str | None = None) -> httpx2.Client:
        """A client of the engine, or of its agent. The agent's gets the token, the engine's only if given."""
        path = self.place.control_socket if control else self.place.engine_socket
        given = token or (self.token if control else None)
        return httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(path)),
            base_url="http://engine",
            headers={TOKEN_HEADER: given} if given else {},
            timeout=60,
            trust_env=False,
        )

    def status(self) -> BackendStatus:
        with self.http(control=True) as client:
            return msgspec.json.decode(client.get("/status").content, type=BackendStatus)

    def wait_ready(self, holds: Callable[[BackendStatus], bool] = lambda status: True) -> BackendStatus:
        """The first status that is ready and for which it holds; fails if the agent ends or time is up."""
        deadline = time.monotonic() + START_LIMIT_S
        status: BackendStatus | None = None
        while time.monotonic() < deadline:
            if self._listens():
                status = self.status()
                if status.state is State.READY and holds(status):
                    return status
            assert self.agent.poll() is None, f"the agent ended:\n{self.printed()}"
            time.sleep(0.1)
        raise AssertionError(f"{self.place.name} did not become ready: {status}\n{self.printed()}")

    def answers_a_short_prompt_first(self) -> None:
        """What kills an engine that has not asked for its processor's tiles (`backends.vllm.start`)."""
        with self.http() as client:
            answer = client.post("/v1/completions", json={"prompt": [1, 2, 3], "max_tokens": 1})
        assert answer.status_code == 200, answer.text

    def printed(self) -> str:
        """The last lines of agent and engine."""
        parts = [self.run_dir / f"{self.place.name}.agent.log", self.run_dir / self.place.log]
        return "\n".join(part.read_text(errors="replace")[-3000:] for part in parts if part.exists())

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.place.control_socket)) == 0


@dataclass(frozen=True)
class EnginesUnderTest:
    """Engines of one configuration."""

    run_dir: Path
    config: Path
    """An `infer_config.yaml` with `engine` and `run_dir`."""
    engines: tuple[EngineUnderTest, ...]

    def wait_ready(self) -> None:
        for engine in self.engines:
            engine.wait_ready()


def require_engine() -> None:
    """Fails, and does not skip, where vLLM is not installed: a green run must mean that it was tested."""
    try:
        find_engine(dict(os.environ), Device.AUTO)  # noqa: TID251 (as the command does)
    except EngineMissing as missing:
        pytest.fail(f"{missing}", pytrace=False)


def start_engines(
    replicas: int, *, checkpoints: Mapping[str, object] | None = None, **engine: object
) -> Iterator[EnginesUnderTest]:
    """Start engines with these settings, yield them when all are ready, end them and everything of theirs.

    `checkpoints`: where their weights come from, as in the configuration.
    """
    require_engine()
    with tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as name:
        run_dir = Path(name)
        config = run_dir / "infer_config.yaml"
        settings = {"model": MODEL, "replicas": replicas, "kv_cache_gib": 0.25, **engine}
        sections = {"run_dir": name, "engine": settings, "checkpoints": checkpoints or {}}
        config.write_bytes(msgspec.json.encode(sections))
        found = places(run_dir, MODEL, replicas)
        started = tuple(EngineUnderTest(place, run_dir, _start_agent(place, config)) for place in found)
        under_test = EnginesUnderTest(run_dir, config, started)
        try:
            under_test.wait_ready()
            for each in started:
                each.answers_a_short_prompt_first()
            yield under_test
        finally:
            for each in started:
                each.agent.terminate()
            for each in started:
                each.agent.wait(60)


def _start_agent(place: Place, config: Path) -> subprocess.Popen[bytes]:
    command = (
        sys.executable,
        "-m",
        "gateway",
        "backend",
        "--config",
        str(config),
        "--index",
        str(place.index),
    )
    with (config.parent / f"{place.name}.agent.log").open("wb") as log:
        return subprocess.Popen(
            leashed(command, grace_s=60),
            cwd=config.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},  # noqa: TID251 (passed on)
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.fixture(scope="session")
def tiny_engines() -> Iterator[EnginesUnderTest]:
    """Two engines of the tiny model, ready; shared by the whole session."""
    yield from start_engines(REPLICAS)
