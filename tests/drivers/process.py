"""The gateway or a fake engine as a process of its own: started, waited for, stopped, its log judged.

A process that leaves a traceback in its log fails the test, whatever else it did.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from backends.fake import Behaviour
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually

STOP_LIMIT_S = 30.0
_TRACES = ("Traceback (most recent call last)", "Task exception was never retrieved", "was never awaited")


@dataclass(slots=True)
class Running:
    process: asyncio.subprocess.Process
    url: str
    log_file: Path

    @property
    def log(self) -> str:
        """Its standard output and error until now."""
        return self.log_file.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def resident_bytes(self) -> int:
        """Its memory (Linux)."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def signal(self, number: signal.Signals) -> None:
        """SIGTERM, SIGHUP, SIGSTOP, SIGCONT, SIGKILL."""
        self.process.send_signal(number)

    async def ended(self, within: float = STOP_LIMIT_S) -> int:
        """Its exit status, once it has ended."""
        async with asyncio.timeout(within):
            return await self.process.wait()

    def assert_no_traceback(self) -> None:
        log = self.log
        found = [trace for trace in _TRACES if trace in log]
        assert not found, f"{found[0]} in its log:\n{log[-5000:]}"


@asynccontextmanager
async def running(
    command: list[str], url: str, ready_path: str, within: float = 30.0
) -> AsyncIterator[Running]:
    """Run the command until the block ends, from when `ready_path` answers 200 at `url`.

    At the end it gets SIGTERM, and SIGKILL if that does not end it; then its log is judged.
    """
    with TemporaryDirectory() as folder:
        log_file = Path(folder) / "log"
        with log_file.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=asyncio.subprocess.STDOUT
            )
        run = Running(process, url, log_file)
        try:
            await eventually(lambda: _ready(run, ready_path), within=within, what=f"{command} is ready")
            yield run
        finally:
            await _stop(run)
        run.assert_no_traceback()


@asynccontextmanager
async def running_gateway(
    config: Mapping[str, Any], *, ready_path: str = "/readyz"
) -> AsyncIterator[Running]:
    """`changeover gateway` with this configuration, on a free port unless the configuration names one.

    Unless the configuration says otherwise it logs in JSON and leaves no run directory behind.
    """
    port = config.get("server", {}).get("port") or free_port()
    server = {"host": "127.0.0.1", **config.get("server", {}), "port": port}
    with TemporaryDirectory() as folder:
        whole = {"logging": {"format": "json"}, "run_dir": folder, **config, "server": server}
        file = Path(folder) / "infer_config.yaml"
        file.write_bytes(msgspec.json.encode(whole))  # YAML is a superset of JSON
        command = [sys.executable, "-m", "gateway", "gateway", "--config", str(file)]
        host = server["host"] if server["host"] != "0.0.0.0" else "127.0.0.1"
        async with running(command, f"http://{host}:{port}", ready_path) as run:
            yield run


@asynccontextmanager
async def running_fake(behaviour: Behaviour | None = None, *, name: str = "a") -> AsyncIterator[Running]:
    """`python -m backends.fake` on a free port."""
    port = free_port()
    given = msgspec.json.encode(behaviour or Behaviour()).decode()
    command = [
        sys.executable,
        "-m",
        "backends.fake",
        "--port",
        str(port),
        "--name",
        name,
        "--behaviour",
        given,
    ]
    async with running(command, f"http://127.0.0.1:{port}", "/fake/stats") as run:
        yield run


def free_port() -> int:
    """A TCP port that was free just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def _ready(run: Running, path: str) -> bool:
    if not run.alive:
        raise RuntimeError(f"it ended with {run.process.returncode} before it was ready:\n{run.log[-5000:]}")
    try:
        return (await ask(run.url, path)).status == 200
    except OSError:
        return False


async def _stop(run: Running) -> None:
    if run.alive:
        run.signal(signal.SIGCONT)
        run.signal(signal.SIGTERM)
        try:
            await run.ended()
        except TimeoutError:
            run.signal(signal.SIGKILL)
            await run.ended()
            raise AssertionError(
                f"it did not end within {STOP_LIMIT_S} s of SIGTERM:\n{run.log[-5000:]}"
            ) from None
