"""`changeover backend` as a process that swaps: its control port, and what remains when it is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from backends.agent.client import AgentClient, AgentRefused, AgentUnreachable
from backends.agent.listening import ControlOpen, bind_tcp, split_address
from backends.contract import BackendStatus, Outcome, Phase, State, SwapOrder
from backends.layout import places
from backends.rundir import prepare
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from tests.checkpoints.models import write_model
from tests.drivers.waiting import eventually
from tests.stand_in_vllm import install

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-secret-of-enough-characters"
LIMIT_S = 40.0


class Process:
    """One backend, run as a user would run it, with a store of two versions."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        (self.place,) = places(self.run_dir, "m", 1)
        self.port = _free_port()
        self.store: Store = open_store(str(folder / "store"), "m")
        for seed in (1, 2):
            publish(write_model(folder / f"v{seed}", seed=seed), self.store, Request(run="r", step=seed))
        self.local = folder / "local"
        self._folder = folder
        self._config = folder / "infer_config.yaml"
        self._config.write_bytes(
            msgspec.json.encode(
                {
                    "run_dir": str(self.run_dir),
                    "engine": {
                        "model": str(write_model(folder / "base", seed=100)),
                        "served_name": "m",
                        "replicas": 1,
                        "shutdown_timeout_s": 0,
                    },
                    "checkpoints": {"store": str(folder / "store"), "local": str(self.local)},
                }
            )
        )
        install(folder / "venv")
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str, token: str = TOKEN) -> None:
        self.process = subprocess.Popen(
            (sys.executable, "-m", "gateway", "backend", "--config", str(self._config), *arguments),
            cwd=self._folder,
            env={
                **os.environ,  # noqa: TID251 (passed on)
                "PYTHONPATH": str(ROOT),
                "CHANGEOVER_ENGINE_VENV": str(self._folder / "venv"),
                "CHANGEOVER_CACHE_DIR": str(self._folder / "cache"),
                "CHANGEOVER_CONTROL_TOKEN": token,
                "STAND_IN_FAULTS": str(self._folder / "faults.json"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def meet(self, **faults: str) -> None:
        (self._folder / "faults.json").write_bytes(msgspec.json.encode(faults))

    def remote(self, token: str = TOKEN) -> AgentClient:
        return AgentClient(f"http://127.0.0.1:{self.port}", token)

    def local_client(self) -> AgentClient:
        return AgentClient(self.place.control_socket, prepare(self.run_dir))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def backend() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as name:
        process = Process(Path(name))
        yield process
        process.kill()


@asynccontextmanager
async def ready(client: AgentClient) -> AsyncIterator[AgentClient]:
    async with client:
        await eventually(lambda: _state(client), within=LIMIT_S)
        yield client


async def _state(client: AgentClient) -> BackendStatus | None:
    try:
        status = await client.status()
    except (AgentUnreachable, FileNotFoundError):
        return None
    return status if status.state is State.READY else None


async def _end(client: AgentClient, order: SwapOrder) -> Outcome | None:
    return (await client.swap_status(order.id)).outcome


async def test_a_swap_is_ordered_over_tcp_with_the_token_and_not_without(backend: Process) -> None:
    backend.start("--control-listen", f"127.0.0.1:{backend.port}")
    async with ready(backend.remote()) as client, backend.remote("guessed-but-long-enough") as stranger:
        for asking in (stranger.status(), stranger.prepare(1), stranger.swap(SwapOrder("x", 1))):
            with pytest.raises(AgentRefused) as refused:
                await asking
            assert refused.value.status == 404
        order = SwapOrder("one", 1, warm_up=1)
        await client.swap(order)
        assert (await client.swap(order)).id == "one"
        assert await eventually(lambda: _end(client, order), within=LIMIT_S) is Outcome.SERVING_NEW
        with pytest.raises(AgentRefused) as not_held:
            await client.release("one-that-never-was")
        assert not_held.value.status == 404


@pytest.mark.fault("S3")
@pytest.mark.parametrize("phase", [Phase.RESTARTING, Phase.HELD])
async def test_an_agent_that_is_killed_in_mid_swap_comes_back_on_what_should_be_served(
    backend: Process, phase: Phase
) -> None:
    backend.start()
    async with ready(backend.local_client()) as client:
        base = (await client.status()).version
        order = SwapOrder("one", 1, hold=True, warm_up=1)
        await client.swap(order)
        await eventually(lambda: _is_at(client, phase), within=LIMIT_S)
        pid = (await client.status()).pid
        backend.kill()
    if pid is not None:
        await eventually(lambda: not Path(f"/proc/{pid}").exists(), what="its engine ends with it")

    backend.start()
    async with ready(backend.local_client()) as client:
        status = await client.status()
        assert (status.version, status.swap) == (base, None)
        assert not list(backend.local.glob("*/.*.partial-*"))


async def _is_at(client: AgentClient, phase: Phase) -> bool:
    swap = (await client.status()).swap
    return swap is not None and swap.phase is phase


@pytest.mark.fault("S4")
async def test_a_backend_starts_on_what_the_store_says_should_be_served(backend: Process) -> None:
    backend.store.point("serving", 2, by="test")
    backend.start()
    async with ready(backend.local_client()) as client:
        status = await client.status()
        assert status.version == status.wanted
        assert status.version.startswith("v2-")


def test_a_control_port_without_a_token_is_not_opened(backend: Process) -> None:
    backend.start("--control-listen", f"127.0.0.1:{backend.port}", token="")
    assert backend.process is not None
    output, _ = backend.process.communicate(timeout=LIMIT_S)

    assert backend.process.returncode == 1
    assert "whoever reaches this port could change the weights: set `admin.control_token`" in output
    assert "Traceback" not in output


def test_addresses_are_read_or_refused() -> None:
    assert split_address("0.0.0.0:9001") == ("0.0.0.0", 9001)
    assert split_address(":9001") == ("0.0.0.0", 9001)
    assert split_address("[::1]:9001") == ("::1", 9001)
    for wrong in ("9001", "host:", "host:http", "host:99999", "host:-1"):
        with pytest.raises(ControlOpen, match="write host:port"):
            split_address(wrong)


@pytest.mark.parametrize("token", ["", "short"])
def test_a_short_token_opens_no_port(token: str) -> None:
    with pytest.raises(ControlOpen, match="16 characters or more"):
        bind_tcp("127.0.0.1:0", token)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
