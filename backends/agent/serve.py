"""Runs a backend and its control API as one process: until it is stopped, signalled, or cannot go on."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from random import Random

from backends.agent.api import control_api
from backends.agent.assignment import Assignment
from backends.agent.backend import Fixed, Swapping
from backends.agent.listening import ControlServer, bind_private, bind_tcp
from backends.agent.tasks import Tasks
from backends.qualify.background import Background
from backends.settings import Checkpoints
from checkpoints.store.open import open_store
from checkpoints.store.store import Store


@dataclass(frozen=True, slots=True)
class Remote:
    """Where the control API listens besides its socket, and the token that opens it there."""

    address: str
    token: str


def run_agent(
    assignment: Assignment,
    control_socket: Path,
    *,
    checkpoints: Checkpoints | None = None,
    remote: Remote | None = None,
) -> None:
    """Keep the engine until /stop, SIGTERM or SIGINT; a second signal kills it. Blocks; owns the event loop.

    Raises AlreadyRunning, ControlOpen, CheckpointError or OSError before anything is started, EngineFailed
    when the engine cannot be kept.
    """
    options = checkpoints or Checkpoints()
    store = _open(options, assignment)
    with bind_private(control_socket) as private:
        try:
            listening = [(private, assignment.token)]
            if remote is not None:
                listening.append((bind_tcp(remote.address, remote.token), remote.token))
            asyncio.run(_serve(assignment, options, store, listening))
        finally:
            for sock, _ in listening:
                sock.close()
            control_socket.unlink(missing_ok=True)


async def _serve(
    assignment: Assignment,
    options: Checkpoints,
    store: Store | None,
    listening: list[tuple[socket.socket, str]],
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group, assignment.name)
            backend: Fixed | Swapping = Fixed(assignment)
            if store is not None:
                background = _background(assignment, store) if options.qualify else None
                backend = Swapping(assignment, store, options.keep_local, tasks, Random(), background)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, backend.stop)
            running = []
            for sock, token in listening:
                server = ControlServer(control_api(backend, token))
                running.append(server)
                group.create_task(server.serve(sockets=[sock]), name="control-api")
            try:
                await backend.run()
            finally:
                tasks.cancel()
                for server in running:
                    server.should_exit = True
    except* Exception as errors:
        raise errors.exceptions[0] from None


def _background(assignment: Assignment, store: Store) -> Background:
    recipe = assignment.recipe
    lock = assignment.copies / "qualify.lock"
    return Background(store.files, recipe.settings, recipe.inherited, lock)


def _open(options: Checkpoints, assignment: Assignment) -> Store | None:
    """The store that is configured; with trusted keys, only what they signed is believed."""
    if options.store is None:
        return None
    check = None
    if options.trusted_keys:
        from checkpoints.signatures import checker  # needs the extra `signatures`

        check = checker(Path(key).expanduser() for key in options.trusted_keys)
    return open_store(options.store, options.model or assignment.model, check=check)
