"""`changeover serve` as a process, with a stand-in for vLLM: all of it up, all of it down, nothing left."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from gateway.cli.serve_screen import Row, Screen, table
from tests.stand_in_vllm import install

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60


class Serving:
    """One `changeover serve`. Every process below it holds the pipe open: its end shows that all are gone."""

    def __init__(self, folder: Path, cache: Path, engine: str) -> None:
        config = folder / "infer_config.yaml"
        config.write_text(
            f"run_dir: {folder / 'run'}\n"
            f"engine: {{model: tiny-llama, replicas: 2, shutdown_timeout_s: 2{engine}}}\n"
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.printed = ""
        self.process = subprocess.Popen(
            (sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", str(self.port)),
            cwd=folder,
            env={
                **os.environ,  # noqa: TID251 (passed on)
                "PYTHONPATH": str(ROOT),
                "CHANGEOVER_ENGINE_VENV": str(folder / "venv"),
                "CHANGEOVER_CACHE_DIR": str(cache),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def read_until(self, words: str | None) -> str:
        """All that is printed up to these words; None: until every process below has ended."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + LIMIT_S
        while words is None or words not in self.printed:
            assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], self.printed
            piece = os.read(descriptor, 65536).decode(errors="replace")
            if not piece:
                assert words is None, self.printed
                break
            self.printed += piece
        return self.printed

    def ready(self) -> None:
        self.read_until("\nready after")

    def end(self) -> tuple[int, str]:
        printed = self.read_until(None)
        return self.process.wait(LIMIT_S), printed

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(cache: Path) -> Iterator[Callable[..., Serving]]:
    with tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as name:
        install(Path(name) / "venv")
        started: list[Serving] = []

        def begin(engine: str = "") -> Serving:
            started.append(Serving(Path(name), cache, engine))
            return started[-1]

        yield begin
        for each in started:
            each.close()


def test_everything_starts_and_the_ready_line_says_what_to_try(start: Callable[..., Serving]) -> None:
    serving = start()
    serving.ready()
    printed = serving.read_until("model: tiny-llama")

    assert f"curl -X POST http://localhost:{serving.port}/predict" in printed
    assert "backend-0 (tiny-llama) ready" in printed
    assert "backend-1 (tiny-llama) ready" in printed
    assert httpx2.get(f"{serving.url}/readyz").json()["ready"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_down_the_gateway_and_then_the_engines(
    start: Callable[..., Serving], number: signal.Signals
) -> None:
    serving = start()
    serving.ready()
    serving.process.send_signal(number)
    code, printed = serving.end()

    assert code == 0, printed
    assert "ending: the gateway first, then the engines" in printed


def test_nothing_is_left_when_serve_is_killed(start: Callable[..., Serving]) -> None:
    serving = start()
    serving.ready()
    serving.process.kill()

    serving.read_until(None)


def test_a_signal_while_engines_start_ends_them(start: Callable[..., Serving]) -> None:
    serving = start(", env: {STAND_IN_DEAF: '1'}")
    serving.read_until("loading weights")
    serving.process.terminate()
    code, _ = serving.end()

    assert code == 0


def test_an_engine_that_cannot_start_takes_everything_down_with_its_reason(
    start: Callable[..., Serving],
) -> None:
    serving = start(", env: {STAND_IN_EXIT: 'vllm serve: error: unrecognized arguments: --nonsense'}")
    code, printed = serving.end()

    assert code == 1
    assert "check engine.extra_args" in printed
    assert "could not start (exit code 1)" in printed
    assert "Traceback" not in printed


def test_a_port_that_is_taken_is_said_before_anything_starts(start: Callable[..., Serving]) -> None:
    first = start()
    first.ready()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            (sys.executable, "-m", "gateway", "serve", "--port", str(port)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == (
        f"cannot listen on 0.0.0.0 port {port}: Address already in use. Choose another with --port\n"
    )


def test_a_backend_that_dies_later_is_started_again(start: Callable[..., Serving]) -> None:
    serving = start()
    serving.ready()
    agents = subprocess.run(
        ("pgrep", "-f", f"backend.*server.port={serving.port}.*--index 1"),
        capture_output=True,
        text=True,
        check=True,
    )
    for pid in agents.stdout.split():
        os.kill(int(pid), signal.SIGKILL)

    serving.read_until("backend-1 ended (exit code")
    serving.read_until("starting it again in 1 s")
    assert serving.process.poll() is None


ROWS = (
    Row("gateway", "http://localhost:8000", "starting", "waiting for engines", 3.0),
    Row("backend-0", "tiny-llama", "starting", "loading weights", 2.6),
)


def test_what_is_no_terminal_gets_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Console())
    screen.show(ROWS)
    screen.show(ROWS)
    screen.show((ROWS[0], Row("backend-0", "tiny-llama", "ready", "", 9.2)))

    assert capsys.readouterr().out.splitlines() == [
        "gateway (http://localhost:8000) starting: waiting for engines after 3 s",
        "backend-0 (tiny-llama) starting: loading weights after 3 s",
        "backend-0 (tiny-llama) ready after 9 s",
    ]


def test_a_terminal_gets_one_line_a_process_that_changes_in_place() -> None:
    console = Console(width=100, record=True)
    console.print(table(ROWS))

    assert [line.split() for line in console.export_text().splitlines()] == [
        ["gateway", "http://localhost:8000", "starting", "3", "s", "waiting", "for", "engines"],
        ["backend-0", "tiny-llama", "starting", "3", "s", "loading", "weights"],
    ]
