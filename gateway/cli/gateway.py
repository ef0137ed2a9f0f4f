"""`changeover gateway`: the gateway alone, in front of engines that run already."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from backends import rundir
from gateway.app import Gateway
from gateway.cli.machine import machine_run_dir
from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit, parse_assignments
from gateway.observe import cells
from gateway.observe.logs import Logs
from gateway.observe.sink import Sink
from gateway.observe.spans import TelemetryMissing, open_spans
from gateway.server import listen, run
from gateway.settings.environment import process_environment
from gateway.settings.load import Loaded, load
from gateway.settings.tree import Settings
from gateway.supervisor import Supervisor, worker_command
from gateway.version import installed_version


def gateway(
    config: ConfigOption = None,
    assignments: SetOption = None,
    port: Annotated[int | None, typer.Option("--port", help="The same as --set server.port=PORT.")] = None,
    slot: Annotated[int | None, typer.Option("--slot", hidden=True)] = None,
) -> None:
    """Run the gateway: `/predict` and the OpenAI API in front of the configured engines.

    Ends with 0 after SIGTERM when what was running has ended; SIGHUP reads the configuration again.

    Example: changeover gateway --config infer_config.yaml --set server.workers=4
    """
    if port is not None:
        assignments = [*(assignments or []), f"server.port={port}"]
    loaded = load_or_exit(config, assignments)
    try:
        if slot is None and loaded.settings.server.workers > 1:
            raise typer.Exit(_supervise(loaded, config, assignments))
        _work(loaded, slot, parse_assignments(assignments))
    except (OSError, rundir.NotPrivate, TelemetryMissing) as error:
        fail(str(error))


def _supervise(loaded: Loaded, config: Path | None, assignments: list[str] | None) -> int:
    server = loaded.settings.server
    reserved = listen(server.host, server.port, shared=True)
    port = reserved.getsockname()[1]
    folder = machine_run_dir(loaded.settings)
    rundir.prepare(folder)
    cells.prepare(folder / "metrics")
    arguments = ["gateway", *(["--config", str(config)] if config is not None else [])]
    for assignment in [*(assignments or []), f"server.port={port}", f"run_dir={folder}"]:
        arguments += ["--set", assignment]
    _say_where(server.host, port)
    return Supervisor(worker_command(arguments), server.workers, reserved).run()


def _work(loaded: Loaded, slot: int | None, overrides: dict[str, str]) -> None:
    settings = loaded.settings
    alone = slot is None
    sock = listen(settings.server.host, settings.server.port, shared=not alone)
    port = sock.getsockname()[1]
    folder = machine_run_dir(settings)
    rundir.prepare(folder)
    if alone:
        cells.prepare(folder / "metrics")
    sink = Sink(sys.stderr.fileno())
    spans = open_spans(settings.telemetry, version=installed_version())
    with Logs(settings.logging, sink, secrets=secrets_of(settings)) as logs:
        served = Gateway(
            loaded,
            run_dir=folder,
            slot=slot or 0,
            sinks=(logs.request, *((spans.record,) if spans is not None else ())),
            load=lambda: load(loaded.path, environment=process_environment(), overrides=overrides),
            on_settings=lambda settings: logs.follow(settings.logging, secrets=secrets_of(settings)),
        )
        sink.dropped = served.metrics.log_lines_dropped.add
        if alone:
            _say_where(settings.server.host, port)
        run(served, sock)
        if spans is not None:
            spans.close()
    sink.close()


def _say_where(host: str, port: int) -> None:
    shown = "localhost" if host in ("0.0.0.0", "::", "127.0.0.1") else host
    print(f"Changeover listens on http://{shown}:{port}", flush=True)


def secrets_of(settings: Settings) -> list[str]:
    """Values that must not be seen in any log line."""
    found = [settings.admin.token, settings.admin.control_token, settings.cache.url]
    found += [endpoint.api_key for model in settings.served_models() for endpoint in model.endpoints]
    return [secret.get_secret_value() for secret in found if secret is not None]
