"""`changeover check`: the resolved configuration with each value's origin, or all that is wrong with it."""

from __future__ import annotations

import getpass
import hashlib
import sys
from typing import Annotated

import typer

from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit, parse_assignments
from gateway.settings.environment import process_environment
from gateway.settings.explain import explain_json, explain_text
from gateway.settings.load import load
from gateway.settings.problems import SettingsError, problems_json


def check(
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    changed_only: Annotated[bool, typer.Option("--changed-only", help="Leave out defaults.")] = False,
    hash_key: Annotated[
        bool, typer.Option("--hash-key", help="Read an API key from stdin and print its hash for auth.keys.")
    ] = False,
) -> None:
    """Show the resolved configuration with the origin of each value.

    Where something is wrong, says so for all of it at once and ends with 2. Secrets are not shown.

    Example: changeover check --config infer_config.yaml --changed-only
    """
    if hash_key:
        print(hashlib.sha256(_read_key().encode()).hexdigest())
    elif as_json:
        print(_as_json(config, assignments, changed_only))
    else:
        print(explain_text(load_or_exit(config, assignments), changed_only=changed_only))


def _as_json(config: ConfigOption, assignments: SetOption, changed_only: bool) -> str:
    try:
        loaded = load(config, environment=process_environment(), overrides=parse_assignments(assignments))
    except SettingsError as error:
        print(problems_json(error).decode())
        raise typer.Exit(2) from None
    return explain_json(loaded, changed_only=changed_only).decode()


def _read_key() -> str:
    key = getpass.getpass("API key: ") if sys.stdin.isatty() else sys.stdin.readline()
    return key.strip() or fail("No key was given: echo KEY | changeover check --hash-key", code=2)
