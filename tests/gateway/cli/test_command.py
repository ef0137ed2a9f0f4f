"""The command as a whole: help, suggestions, and that nothing is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.cli import COMMANDS
from gateway.cli.lazy import Command, build
from tests.gateway.cli.conftest import Run

HEAVY = ("fastapi", "pydantic", "uvicorn", "httpx2", "ruamel", "rich", "msgspec", "gateway.settings")


def python(code: str) -> str:
    """Run code in a fresh interpreter; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_help_lists_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert f"  {command.name} " in ran.out


def test_help_imports_nothing_that_is_slow() -> None:
    printed = python(
        "import sys; sys.argv = ['changeover', '--help']\n"
        "from gateway.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('imported:', *sorted(sys.modules))"
    )
    imported = printed.rsplit("imported:", 1)[1].split()
    assert "typer" in imported
    assert not [name for name in imported if name in HEAVY]


def test_the_command_without_arguments_shows_its_help(run: Run) -> None:
    ran = run()
    assert "Commands:" in ran.out + ran.err


def test_the_version_is_that_of_the_distribution(run: Run) -> None:
    ran = run("--version")
    assert ran.code == 0
    assert ran.out.startswith("changeover ")


def test_a_misspelt_command_gets_a_suggestion(run: Run) -> None:
    ran = run("chekc")
    assert ran.code == 2
    assert "check" in ran.err


def test_a_missing_package_is_named_and_nothing_is_traced(capsys: pytest.CaptureFixture[str]) -> None:
    app = build([Command("fly", "tests.gateway.cli.needs_a_package", "fly", "Fly.")])
    with pytest.raises(SystemExit) as ended:
        app(["fly"], prog_name="changeover")
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "`changeover fly` needs the package 'no_such_package', which is not installed here.\n"
    )


def test_a_command_that_is_not_installed_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    app = build([Command("fly", "gateway.cli.no_such_module", "fly", "Fly.")])
    with pytest.raises(SystemExit):
        app(["fly"], prog_name="changeover")
    assert capsys.readouterr().err == "`changeover fly` is not part of this installation.\n"


@pytest.mark.parametrize("name", ["serve", "gateway", "backend", "check", "status", "publish"])
def test_every_command_has_help_with_an_example(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert f"Example: changeover {name}" in ran.out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_can_be_imported(run: Run, command: Command) -> None:
    assert run(command.name, "--help").out.startswith(f"Usage: changeover {command.name} ")
