"""Runs commands in this process, as the script does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.cli import COMMANDS
from gateway.cli.lazy import build


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("check", "--json")` in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            build(COMMANDS)(list(arguments), prog_name="changeover")
        out, err = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return command
