"""`changeover doctor`: what goes wrong in practice, looked for before it does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from backends.models.cache import cache_folder
from gateway.cli.options import ConfigOption, SetOption, load_or_exit
from gateway.cli.stores import JsonOption
from gateway.doctor.examine import examine
from gateway.doctor.finding import Finding, Level
from gateway.settings.environment import process_environment

_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "red"}


def doctor(
    config: ConfigOption = None,
    assignments: SetOption = None,
    trainer: Annotated[
        Path | None,
        typer.Option(
            "--trainer", metavar="DIR", help="The folder that a training begins with: compare tokenizers."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine and what the configuration names; each finding says how to mend it.

    Ends with 1 if something will not work; warnings and notes leave it at 0.

    Example: changeover doctor --config infer_config.yaml --trainer ./model
    """
    settings = load_or_exit(config, assignments).settings
    environment = process_environment()
    cache = cache_folder(environment, Path.home())
    console = Console(highlight=False)
    found = []
    for finding in examine(settings, environment, cache, trainer):
        found.append(finding)
        if not as_json:
            _show(console, finding)
    errors = sum(finding.level is Level.ERROR for finding in found)
    if as_json:
        sys.stdout.write(msgspec.json.encode({"errors": errors, "findings": found}).decode() + "\n")
    else:
        console.print(_summary(found, errors))
    raise typer.Exit(1 if errors else 0)


def _show(console: Console, finding: Finding) -> None:
    style = _STYLES[finding.level]
    console.print(
        f"[{style}]{finding.level.value:<8}[/{style}] {escape(finding.topic)}: {escape(finding.text)}",
        soft_wrap=True,
    )
    if finding.mend:
        console.print(f"         → {escape(finding.mend)}", soft_wrap=True)


def _summary(found: list[Finding], errors: int) -> str:
    warnings = sum(finding.level is Level.WARNING for finding in found)
    return (
        f"{len(found)} checks, {errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    )
