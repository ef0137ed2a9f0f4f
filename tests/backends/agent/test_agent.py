"""`changeover backend` as a process, with a stand-in for vLLM: started, killed, drained, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from backends.contract import ELSEWHERE_HEADER, TOKEN_HEADER, BackendStatus, State
from backends.layout import Place, places
from backends.rundir import read_token
from tests.stand_in_vllm import install

LIMIT_S = 30


class Agent:
    """One backend of a configuration, run as a user would run it."""

    def __init__(self, folder: Path, cache: Path, engine: str) -> None:
        self.run_dir = folder / "run"
        (self.place,) = places(self.run_dir, "tiny-llama", 1)
        config = folder / "infer_config.yaml"
        config.write_text(
            f"run_dir: {self.run_dir}\n"
            f"engine: {{model: tiny-llama, replicas: 1, shutdown_timeout_s: 5{engine}}}\n"
        )
        self.process = subprocess.Popen(
            (sys.executable, "-m", "gateway", "backend", "--config", str(config)),
            cwd=folder,
            env={
                **os.environ,  # noqa: TID251 (passed on)
                "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
                "CHANGEOVER_ENGINE_VENV": str(folder / "venv"),
                "CHANGEOVER_CACHE_DIR": str(cache),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def client(self, path: Path, token: str | None = None) -> httpx2.Client:
        return httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(path)),
            base_url="http://backend",
            headers={TOKEN_HEADER: token or read_token(self.run_dir)},
            timeout=LIMIT_S,
        )

    def status(self) -> BackendStatus:
        with self.client(self.place.control_socket) as client:
            return msgspec.json.decode(client.get("/status").content, type=BackendStatus)

    def wait_for(self, holds: Callable[[BackendStatus], bool]) -> BackendStatus:
        """The first status for which it holds."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if listens(self.place.control_socket):
                status = self.status()
                if holds(status):
                    return status
            else:
                assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.02)
        raise AssertionError(f"it never came to that: {self.status()}")

    def ready(self) -> BackendStatus:
        return self.wait_for(lambda status: status.state is State.READY)

    def end(self) -> tuple[int, str]:
        """Its exit code and all that it printed."""
        output, _ = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="co-") as name:
        install(Path(name) / "venv")
        yield Path(name)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(folder: Path, cache: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def begin(engine: str = "") -> Agent:
        agents.append(Agent(folder, cache, engine))
        return agents[-1]

    yield begin
    for agent in agents:
        if agent.process.poll() is None:
            agent.process.kill()
        agent.process.communicate(timeout=LIMIT_S)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def test_an_engine_becomes_ready_and_says_what_it_serves(start: Callable[..., Agent]) -> None:
    agent = start()
    status = agent.ready()

    assert (status.name, status.model, status.restarts) == ("backend-0", "tiny-llama", 0)
    assert status.version.startswith("base-")
    assert "Starting to load model" in (agent.run_dir.parent / agent.place.log).read_text()
    with agent.client(agent.place.engine_socket) as client:
        assert client.get("/v1/models").headers["x-model-version"] == status.version


def test_an_engine_that_is_killed_comes_back(start: Callable[..., Agent]) -> None:
    agent = start()
    before = agent.ready()
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    after = agent.wait_for(lambda status: status.state is State.READY and status.restarts == 1)

    assert after.pid not in (None, before.pid)
    assert after.last_error is not None
    assert "SIGKILL" in after.last_error


def test_the_control_api_is_not_there_without_the_token(start: Callable[..., Agent]) -> None:
    agent = start()
    agent.ready()

    with agent.client(agent.place.control_socket, token="guess") as client:
        answers = [client.get("/status"), client.post("/stop"), client.post("/drain")]

    assert [answer.status_code for answer in answers] == [404] * 3
    assert agent.status().state is State.READY


def test_a_drained_engine_sends_work_elsewhere_until_it_is_taken_back(start: Callable[..., Agent]) -> None:
    agent = start()
    agent.ready()
    with (
        agent.client(agent.place.control_socket) as control,
        agent.client(agent.place.engine_socket) as engine,
    ):
        drained = control.post("/drain", json={"draining": True})
        refused = engine.post("/v1/completions")
        draining = agent.status().state
        control.post("/drain", json={"draining": False})
        taken = engine.post("/v1/completions")

    assert drained.json() == {"version": agent.status().version, "draining": True, "in_flight": 0}
    assert (refused.status_code, refused.headers[ELSEWHERE_HEADER]) == (503, "draining")
    assert draining is State.DRAINING
    assert taken.status_code == 200
    assert agent.status().state is State.READY


def test_an_engine_that_dies_while_it_is_drained_comes_back_drained(start: Callable[..., Agent]) -> None:
    agent = start()
    before = agent.ready()
    assert before.pid is not None
    with agent.client(agent.place.control_socket) as control:
        control.post("/drain", json={"draining": True})
    os.kill(before.pid, signal.SIGKILL)

    agent.wait_for(lambda status: status.restarts == 1 and status.state is State.DRAINING)

    with agent.client(agent.place.engine_socket) as engine:
        assert engine.post("/v1/completions").status_code == 503


def test_sigterm_lets_a_request_in_flight_end_before_the_engine_does(
    start: Callable[..., Agent], folder: Path
) -> None:
    agent = start()
    pid = agent.ready().pid
    assert pid is not None
    with (
        agent.client(agent.place.engine_socket) as client,
        client.stream("POST", "/v1/completions", content=str(folder / "go-on").encode()) as answer,
    ):
        pieces = answer.iter_bytes()
        assert next(pieces) == b"begun "
        agent.process.terminate()
        with agent.client(agent.place.engine_socket) as other:
            while other.get("/changeover/guard").json()["draining"] is False:
                time.sleep(0.02)
        (folder / "go-on").touch()
        assert b"".join(pieces) == b"done"

    code, _ = agent.end()
    assert code == 0
    assert is_gone(pid)
    assert not agent.place.control_socket.exists()


def test_a_second_sigterm_does_not_wait_for_requests(start: Callable[..., Agent], folder: Path) -> None:
    agent = start(", env: {}")
    agent.ready()
    with (
        agent.client(agent.place.engine_socket) as client,
        client.stream("POST", "/v1/completions", content=str(folder / "never").encode()) as answer,
    ):
        next(answer.iter_bytes())
        agent.process.terminate()
        with agent.client(agent.place.engine_socket) as other:
            while other.get("/changeover/guard").json()["draining"] is False:
                time.sleep(0.02)
        began = time.monotonic()
        agent.process.terminate()
        code, _ = agent.end()

    assert code == 0
    assert time.monotonic() - began < 5, "it waited out the limit for requests"


def test_stop_ends_engine_and_agent(start: Callable[..., Agent]) -> None:
    agent = start()
    pid = agent.ready().pid
    assert pid is not None
    with agent.client(agent.place.control_socket) as control:
        assert control.post("/stop").status_code == 202

    code, _ = agent.end()
    assert code == 0
    assert is_gone(pid)


def test_no_engine_is_left_when_its_agent_is_killed(start: Callable[..., Agent]) -> None:
    agent = start()
    pid = agent.ready().pid
    assert pid is not None
    agent.process.kill()

    wait_gone(pid)


def test_an_engine_that_cannot_start_ends_the_backend_with_the_reason(start: Callable[..., Agent]) -> None:
    agent = start(", env: {STAND_IN_EXIT: 'vllm serve: error: unrecognized arguments: --nonsense'}")
    code, output = agent.end()

    assert code == 1
    assert "backend-0: vLLM does not know one of its arguments: check engine.extra_args" in output
    assert "unrecognized arguments: --nonsense" in output
    assert "Traceback" not in output


def test_an_engine_that_is_not_ready_in_time_is_killed_and_given_up(start: Callable[..., Agent]) -> None:
    agent = start(", start_timeout_s: 0.2, env: {STAND_IN_DEAF: '1'}")
    code, output = agent.end()

    assert code == 1
    assert output.count("killing the engine: not ready within 0.2 s") == 3


def test_two_agents_of_one_place_do_not_fight(start: Callable[..., Agent]) -> None:
    first = start()
    first.ready()
    second = start()
    code, output = second.end()

    assert code == 1
    assert "a backend already runs at" in output
    assert first.status().state is State.READY


def test_a_tensor_parallel_size_that_cannot_work_is_refused_before_anything_starts(
    start: Callable[..., Agent],
) -> None:
    agent = start(", tensor_parallel_size: 3")
    code, output = agent.end()

    assert code == 1
    assert "tensor_parallel_size 3 does not divide this model" in output
    assert "Sizes that work: 1, 2, 4, 8" in output
    assert not (agent.run_dir.parent / agent.place.log).exists()


def test_a_socket_file_of_a_dead_agent_is_in_nobodys_way(start: Callable[..., Agent]) -> None:
    first = start()
    place: Place = first.place
    pid = first.ready().pid
    assert pid is not None
    first.process.kill()
    wait_gone(pid)
    assert place.control_socket.exists()

    start().ready()
