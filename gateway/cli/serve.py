"""`changeover serve`: engines and the gateway on this machine, with one command."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from backends.layout import PathTooLong
from backends.models.builtin import ModelNotMade
from backends.models.cache import cache_folder
from backends.models.resolve import ModelUnusable, resolve_model
from backends.rundir import NotPrivate, prepare
from backends.settings import EngineSettings
from backends.vllm.install import EngineMissing, find_engine
from gateway.cli.machine import engine_places, machine_run_dir
from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit
from gateway.cli.serve_run import END_GRACE_S, Plan, Serving
from gateway.cli.serve_screen import Screen
from gateway.settings.environment import process_environment
from gateway.settings.load import Loaded
from gateway.settings.origin import Source

MIN_STARTING_AT_ONCE = 2


def serve(
    config: ConfigOption = None,
    assignments: SetOption = None,
    port: Annotated[int | None, typer.Option("--port", help="The same as --set server.port=PORT.")] = None,
) -> None:
    """Start the configured engines and the gateway on this machine; end them all on Ctrl-C.

    Ends with 0 when it was told to end, with 1 and the reason when something could not start.

    Example: changeover serve --config infer_config.yaml --port 8001
    """
    given = [*(assignments or []), *([f"server.port={port}"] if port is not None else [])]
    loaded = load_or_exit(config, given)
    console = Console()
    try:
        plan = _plan(loaded, config, given, console)
    except (EngineMissing, ModelNotMade, ModelUnusable, NotPrivate, PathTooLong, OSError) as error:
        fail(str(error))
    failure = asyncio.run(_run(plan, Screen(console)))
    if failure:
        fail(failure)


async def _run(plan: Plan, screen: Screen) -> str | None:
    return await Serving(plan, screen).run()


def _plan(loaded: Loaded, config: Path | None, assignments: list[str], console: Console) -> Plan:
    """Everything that can go wrong before a process is started goes wrong here."""
    server = loaded.settings.server
    port = _free_port(server.host, server.port)
    given = [*assignments, f"server.port={port}"]
    if loaded.origins["server.settle_s"].source is Source.DEFAULT:
        # No balancer in front of a machine on its own has to forget it first.
        given.append("server.settle_s=0")
    settings = load_or_exit(config, given).settings
    backends = tuple(engine_places(settings))
    environment = process_environment()
    for engine in _distinct([engine for _, engine in backends]):
        found = find_engine(environment, engine.device)
        cache = cache_folder(environment, Path.home())
        resolve_model(engine, cache=cache, engine_python=found.python, report=console.print)
    host = "localhost" if server.host in ("0.0.0.0", "::", "127.0.0.1") else server.host
    return Plan(
        url=f"http://{host}:{port}",
        model=", ".join(model.name for model in settings.served_models()),
        token=prepare(machine_run_dir(settings)),
        arguments=_arguments(config, given),
        environment=environment,
        backends=backends,
        gateway_grace_s=settings.server.settle_s + settings.server.drain_s + END_GRACE_S,
        starting_at_once=max(MIN_STARTING_AT_ONCE, os.cpu_count() or 1),
    )


def _arguments(config: Path | None, assignments: list[str]) -> tuple[str, ...]:
    chosen = ["--config", str(config)] if config is not None else []
    return (*chosen, *(part for assignment in assignments for part in ("--set", assignment)))


def _distinct(engines: list[EngineSettings]) -> list[EngineSettings]:
    return [engine for position, engine in enumerate(engines) if engine not in engines[:position]]


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises OSError with what to do where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(
                f"cannot listen on {host} port {port}: {error.strerror}. Choose another with --port"
            ) from error
        bound: int = probe.getsockname()[1]
        return bound
