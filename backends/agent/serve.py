"""Runs a keeper and its control API as one process: until it is stopped, signalled, or cannot go on."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from random import Random

from backends.agent.api import control_api
from backends.agent.assignment import Assignment
from backends.agent.backend import Fixed
from backends.agent.keeper import Keeper
from backends.agent.listening import ControlServer, bind_private
from backends.agent.runs import AlwaysBase


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
    keeper = Keeper(assignment, AlwaysBase(assignment.base), Random())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, keeper.stop)
    server = ControlServer(control_api(Fixed(keeper), assignment.token))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listening]), name="control-api")
            try:
                await keeper.run()
            finally:
                server.should_exit = True
    except* Exception as errors:
        raise errors.exceptions[0] from None
