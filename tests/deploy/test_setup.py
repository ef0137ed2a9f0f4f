"""The set-up of the virtual environments: what runs again, and what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """deploy/setup.py, which is a script beside its modules, at work in an empty folder."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    import setup

    monkeypatch.setattr(setup, "ROOT", tmp_path)
    return setup


class Steps:
    """A plan whose steps write down that they ran."""

    def __init__(self, root: Path) -> None:
        self.ran: list[str] = []
        self.root = root

    def plan(self, *names: str, broken: str | None = None) -> object:
        import plans

        def step(name: str) -> object:
            code = 1 if name == broken else 0
            return plans.Step(
                name,
                (name,),
                ((sys.executable, "-c", f"print('did {name}'); raise SystemExit({code})"),),
                action=lambda: self.ran.append(name),
                advice="try again",
            )

        (self.root / "venv").mkdir(exist_ok=True)
        return plans.Plan("test", "venv", lambda: None, tuple(step(name) for name in names))


def test_a_second_run_does_nothing(setup: ModuleType, tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    setup._carry_out(steps.plan("a", "b"))
    setup._carry_out(steps.plan("a", "b"))

    assert steps.ran == ["a", "b"]
    assert "did b" in (tmp_path / "logs" / "setup-test.log").read_text()


def test_an_interrupted_run_goes_on_where_it_stopped(setup: ModuleType, tmp_path: Path) -> None:
    from prerequisites import SetupFailed

    steps = Steps(tmp_path)
    with pytest.raises(SetupFailed, match=r"(?s)b.*did b.*try again"):
        setup._carry_out(steps.plan("a", "b", "c", broken="b"))
    setup._carry_out(steps.plan("a", "b", "c"))

    assert steps.ran == ["a", "b", "c"]


def test_a_changed_step_runs_again_with_those_after_it(setup: ModuleType, tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    setup._carry_out(steps.plan("a", "b", "c"))
    setup._carry_out(steps.plan("a", "B", "c"))

    assert steps.ran == ["a", "b", "c", "B", "c"]


def test_a_shorter_plan_is_done_when_the_longer_is(setup: ModuleType, tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    setup._carry_out(steps.plan("a", "b"))
    setup._carry_out(steps.plan("a"))
    setup._carry_out(steps.plan("a", "b"))

    assert steps.ran == ["a", "b"]


def test_the_stub_gives_a_name_to_what_is_installed_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    from stub import write_stub_distribution

    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(tmp_path)), check=True)
    python = tmp_path / "bin" / "python"
    for version in ("0.31.0", "0.32.0+cpu"):
        write_stub_distribution(python, "vllm", version)

    probe = "from importlib.metadata import version; print(version('vllm'))"
    found = subprocess.run((python, "-c", probe), capture_output=True, text=True, check=True)
    assert found.stdout == "0.32.0+cpu\n"
