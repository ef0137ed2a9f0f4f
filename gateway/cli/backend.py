"""`changeover backend`: keeps one engine of this machine, as `changeover serve` does for all of them."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from backends.agent.assignment import assign
from backends.agent.keeper import EngineFailed
from backends.agent.listening import AlreadyRunning, ControlOpen, split_address
from backends.agent.serve import Remote, run_agent
from backends.layout import PathTooLong
from backends.models.builtin import ModelNotMade
from backends.models.resolve import ModelUnusable
from backends.rundir import NotPrivate, prepare
from backends.vllm.command import TcpListen
from backends.vllm.install import EngineMissing
from checkpoints.errors import CheckpointError
from gateway.cli.machine import engine_places, machine_run_dir
from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit
from gateway.settings.environment import process_environment

CONTROL_TOKEN_VARIABLE = "CHANGEOVER_CONTROL_TOKEN"  # noqa: S105 (a variable's name)
CANNOT_START = (
    AlreadyRunning,
    CheckpointError,
    ControlOpen,
    EngineFailed,
    EngineMissing,
    ModelNotMade,
    ModelUnusable,
    NotPrivate,
    PathTooLong,
)
"""What ends a backend with a sentence instead of a traceback."""


def backend(
    config: ConfigOption = None,
    assignments: SetOption = None,
    index: Annotated[
        int, typer.Option(min=0, help="Which of this machine's backends, counted over all models.")
    ] = 0,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Engine on this TCP port instead of a Unix socket.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address of that port.")] = "127.0.0.1",
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The same as --host and --port.")
    ] = None,
    control_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Swaps may be ordered from other machines here, with the token of `admin.control_token` or "
            "CHANGEOVER_CONTROL_TOKEN.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only what goes wrong.")] = False,
) -> None:
    """Start one engine and keep it running: ready, watched, restarted when it dies.

    Ends with 0 after SIGTERM or /stop, with 1 and the reason when the engine cannot be kept.

    Example: changeover backend --config infer_config.yaml --index 1
    """
    level = logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx2", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = load_or_exit(config, assignments).settings
    places = engine_places(settings)
    if index >= len(places):
        fail(f"--index {index}: the configuration has {len(places)} backends on this machine, counted from 0")
    place, engine = places[index]
    environment = process_environment()
    try:
        address = TcpListen(*split_address(listen)) if listen is not None else None
        if port is not None:
            address = TcpListen(host, port)
        assignment = assign(
            engine,
            place,
            token=prepare(machine_run_dir(settings)),
            environment=environment,
            report=logging.info,
            listen=address,
            checkpoints=settings.checkpoints,
        )
        remote = None
        if control_listen is not None:
            secret = settings.admin.control_token
            token = secret.get_secret_value() if secret else environment.get(CONTROL_TOKEN_VARIABLE, "")
            remote = Remote(control_listen, token)
        run_agent(assignment, place.control_socket, checkpoints=settings.checkpoints, remote=remote)
    except CANNOT_START as error:
        fail(f"{place.name}: {error}")
