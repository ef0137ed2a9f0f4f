"""Runs a keeper and its control API as one process: until it is stopped, signalled, or cannot go on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import uvicorn

from backends.agent.api import control_api
from backends.agent.keeper import Assignment, Keeper


class AlreadyRunning(RuntimeError):
    """Another agent answers on this control socket."""


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_agent(assignment: Assignment, control_socket: Path) -> None:
    """Keep the engine until /stop, SIGTERM or SIGINT; a second signal kills it. Blocks; owns the event loop.

    Raises AlreadyRunning before anything is started, EngineFailed when the engine cannot be kept.
    """
    listening = bind_private(control_socket)
    try:
        asyncio.run(_serve(assignment, listening))
    finally:
        listening.close()
        control_socket.unlink(missing_ok=True)


async def _serve(assignment: Assignment, listening: socket.socket) -> None:
    keeper = Keeper(assignment, Random())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, keeper.stop)
    application = control_api(keeper, assignment.token)
    server = _Server(uvicorn.Config(application, lifespan="off", log_config=None, access_log=False))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listening]), name="control-api")
            try:
                await keeper.run()
            finally:
                server.should_exit = True
    except* Exception as errors:
        raise errors.exceptions[0] from None


def bind_private(path: Path) -> socket.socket:
    """A listening Unix socket that only this user can reach. A file left by a dead agent is replaced.

    Raises AlreadyRunning if someone answers there.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
        else:
            raise AlreadyRunning(f"a backend already runs at {path}: stop it, or set another `run_dir`")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen()
    listening.setblocking(False)
    return listening
