"""Commands that are imported when they are run, and not before."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gateway.cli.options import fail


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is found, and the line about it that `--help` shows without importing it."""

    name: str
    module: str
    attribute: str
    """A function, or a typer app that is this command or holds it."""
    help: str


class LazyGroup(TyperGroup):
    """Holds stand-ins, which are enough for help and suggestions; the command that is run is imported."""

    found_at: Mapping[str, Command] = MappingProxyType({})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, stand_in, rest = super().resolve_command(ctx, args)
        command = self.found_at.get(name or "")
        return name, _load(command) if command else stand_in, rest


def build(commands: Sequence[Command]) -> LazyGroup:
    """The whole application: call it with `prog_name`."""
    app = typer.Typer(
        cls=LazyGroup,
        name="changeover",
        help="A model-serving gateway that changes the weights of its vLLM engines while they serve.",
        epilog="Example: changeover serve --config infer_config.yaml",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    group = get_command(app)
    assert isinstance(group, LazyGroup)
    group.found_at = {command.name: command for command in commands}
    for command in commands:
        group.add_command(TyperCommand(command.name, help=command.help))
    return group


def _options(
    version_wanted: Annotated[
        bool,
        typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Takes the options before the command."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from gateway.version import DISTRIBUTION, installed_version  # slow, and seldom needed

        print(f"{DISTRIBUTION} {installed_version()}")
        raise typer.Exit()


def _load(command: Command) -> Any:
    """Import the command. Ends with a sentence where a package it needs is not installed."""
    try:
        found = getattr(importlib.import_module(command.module), command.attribute)
    except ModuleNotFoundError as error:
        if error.name == command.module:
            fail(f"`changeover {command.name}` is not part of this installation.")
        package = (error.name or "").partition(".")[0]
        fail(f"`changeover {command.name}` needs the package {package!r}, which is not installed here.")
    if not isinstance(found, typer.Typer):
        return _single(found)
    loaded = get_command(found)
    if isinstance(loaded, TyperGroup):
        return loaded.commands.get(command.name, loaded)
    return loaded


def _single(function: Callable[..., None]) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(function)
    return get_command(app)
