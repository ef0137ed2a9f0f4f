"""Which runs a sweep has, and how they compare."""

from __future__ import annotations

import pytest

from training.config.problems import ConfigError
from training.run.result import Result
from training.sweep.grid import Point, Row, aligned, grid, ranked, table


def row(lr: float, loss: float | None, eval_loss: float | None = None) -> Row:
    result = None if loss is None else Result(3, 1.0, 9.0, loss, eval_loss, 1.5, 10.0)
    return Row(Point(f"lr={lr}", {"training.lr": lr}), result)


def test_each_combination_is_a_run() -> None:
    points = grid({"lr": [1e-5, 5e-5], "training.batch_size": [4, 8]}, "sweep.yaml")
    assert [point.name for point in points][:2] == ["lr=1e-05,batch_size=4", "lr=1e-05,batch_size=8"]
    assert points[3].values == {"training.lr": 5e-5, "training.batch_size": 8}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lrr": [1]}, "did you mean training.lr"),
        ({"lr": 1}, "should be a list of values"),
        ({"lr": [1], "training.lr": [2]}, "given twice"),
        ({}, "names no option"),
        ({"lr": list(range(1, 26)), "seed": list(range(25))}, "makes 625 runs; at most 500"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_told(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        grid(values, "sweep.yaml")


def test_records_kept_apart_decide_and_failed_runs_come_last() -> None:
    rows = [row(1, None), row(2, 1.0, 3.0), row(3, 2.0, 2.5), row(4, float("nan"))]
    assert [each.point.values["training.lr"] for each in ranked(rows)][:2] == [3, 2]
    lines = table(rows)
    assert lines[0][:3] == ["training.lr", "loss_first", "loss_last"]
    assert lines[1] == ["3", "9.0000", "2.0000", "2.5000", "3", "1.5"]
    assert "failed" in aligned(lines)
