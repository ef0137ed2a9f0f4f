"""A run's page shows its curves, whatever the run has left so far."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from training.report import NoRun, main, report_of
from training.rl.record import LINES, Update
from training.run.result import Result, save_result

LOG = [
    {"step": 1, "loss": 2.5, "grad_norm": 1.0, "learning_rate": 5e-5, "epoch": 0.1},
    {"step": 2, "loss": 2.0, "grad_norm": 0.5, "learning_rate": 4e-5, "epoch": 0.2},
    {"step": 2, "eval_loss": 2.1, "epoch": 0.2},
]


def _update(version: int, step: int, reward: float | None) -> Update:
    return Update(version, step, 0.1, 0.2, 0.3, "2026-11-30T12:00:00", reward=reward, k3=0.001, mean=0.02)


def _with_log(output: Path) -> Path:
    output.mkdir()
    (output / "trainer_state.json").write_bytes(
        msgspec.json.encode({"log_history": LOG, "best_metric": None})
    )
    return output


def test_the_curves_are_those_of_the_log(tmp_path: Path) -> None:
    plots = {plot.title: plot for plot in report_of(_with_log(tmp_path / "run")).plots}
    assert set(plots) == {"Loss", "Gradient norm, before clipping", "Learning rate"}
    loss, evaluated = plots["Loss"].series
    assert loss.points == [(1.0, 2.5), (2.0, 2.0)]
    assert evaluated.points == [(2.0, 2.1)]


def test_a_finished_run_says_how_it_ended(tmp_path: Path) -> None:
    output = _with_log(tmp_path / "run")
    save_result(output, Result(2, 0.2, 2.5, 2.0, 2.1, 12.0, 4096.0))
    report = report_of(output)
    assert report.verdict == "loss 2.5 -> 2 in 2 steps"
    assert report.facts["tokens"] == "4,096"


def test_a_loop_shows_its_updates(tmp_path: Path) -> None:
    lines = [_update(1, 0, 0.1), _update(2, 8, None)]
    (tmp_path / LINES).write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    report = report_of(tmp_path)
    assert [row[0] for row in report.tables[0].rows] == [1, 2]
    assert report.plots[0].series[0].points == [(0.0, 0.1), (8.0, None)]


def test_a_folder_without_a_run_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoRun):
        report_of(tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "has a run begun here?" in capsys.readouterr().err


def test_the_page_is_written_into_the_folder(tmp_path: Path) -> None:
    output = _with_log(tmp_path / "run")
    assert main([str(output)]) == 0
    assert "<svg" in (output / "report.html").read_text()
