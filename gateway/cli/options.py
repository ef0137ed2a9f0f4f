"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from gateway.settings.load import Loaded

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The configuration file. Default: $CHANGEOVER_CONFIG, else ./infer_config.yaml if there is one.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one option, as server.port=8001. May be repeated."),
]


def parse_assignments(assignments: list[str] | None) -> dict[str, str]:
    """What `--set key=value` says; the last of the same key wins. Ends with 2 where the `=` is missing."""
    overrides: dict[str, str] = {}
    for assignment in assignments or []:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            fail(f"--set {key}: write key=value, as --set server.port=8001", code=2)
        overrides[key.strip()] = value
    return overrides


def load_or_exit(config: Path | None, assignments: list[str] | None) -> Loaded:
    """The settings; where they are wrong, print every problem to stderr and end with 2."""
    from gateway.settings.environment import process_environment
    from gateway.settings.load import load
    from gateway.settings.problems import SettingsError

    overrides = parse_assignments(assignments)
    try:
        return load(config, environment=process_environment(), overrides=overrides)
    except SettingsError as error:
        report(error)
        raise typer.Exit(2) from None


def report(error: Exception) -> None:
    """Print the problems of a SettingsError, one a line, to stderr."""
    lines = str(error).splitlines()
    print(
        f"The configuration cannot be used ({len(lines)} problem{'s' if len(lines) > 1 else ''}):",
        file=sys.stderr,
    )
    for line in lines:
        print(f"  {line}", file=sys.stderr)


def fail(message: str, *, code: int = 1) -> NoReturn:
    """End with one sentence on stderr."""
    print(message, file=sys.stderr)
    raise typer.Exit(code)
