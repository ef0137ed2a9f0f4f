"""A run as one page: its curves, and the updates of a closed loop: `python -m training.report OUTPUT_DIR`.

Read from what a run leaves (`trainer_state.json` of its newest checkpoint, `result.json`, `rl.jsonl`), so it
may go on meanwhile. Needs nothing that trains. The page is that of all reports (`reports.page`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from reports.page import Plot, Report, Series, Table, cell_text, write
from training.rl.record import LINES, Update
from training.run.checkpoints import newest_complete
from training.run.result import Result, read_result

STATE = "trainer_state.json"
"""Written by transformers' Trainer into each checkpoint."""
CURVES = (
    ("Loss", "nats a token", ("loss", "eval_loss"), False),
    ("Reward", "mean reward", ("reward",), False),
    ("Gradient norm, before clipping", "norm", ("grad_norm",), True),
    ("Learning rate", "", ("learning_rate",), False),
    ("Entropy", "nats a token", ("entropy",), False),
    ("Length of the samples", "tokens", ("completions/mean_length",), False),
)
"""Title, what the y axis shows, names in the log, logarithmic."""
Log = list[dict[str, object]]


class NoRun(Exception):
    """The folder holds nothing that could be shown; the message says what was looked for."""


class _State(msgspec.Struct):
    log_history: Log


def read_log(output: Path) -> Log:
    """What the trainer logged, in order; [] while there is no whole checkpoint."""
    newest = newest_complete(output)
    file = newest / STATE if newest is not None else output / STATE
    return msgspec.json.decode(file.read_bytes(), type=_State).log_history if file.exists() else []


def read_updates(output: Path) -> list[Update]:
    """The lines of rl.jsonl; [] for a run whose samples come from elsewhere."""
    file = output / LINES
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Update) for line in lines if line]


def report_of(output: Path) -> Report:
    """The page. Raises NoRun, msgspec.DecodeError."""
    log, updates, result = read_log(output), read_updates(output), read_result(output)
    if not log and not updates and result is None:
        raise NoRun(
            f"{output} holds no whole checkpoint, no {LINES} and no result.json: has a run begun here?"
        )
    ended = msgspec.to_builtins(result) if result is not None else {}
    facts = {name: cell_text(value) for name, value in ended.items()}
    return Report(
        title=f"Training in {output.name}",
        lead="As the trainer logged it." if not updates else "As the trainer and the gateway logged it.",
        verdict=_verdict(result) if result is not None else "",
        tables=[_updates(updates)] if updates else [],
        plots=[*_curves(log), *(_loop(updates) if updates else ())],
        facts=facts,
        about="How it ended",
    )


def _verdict(result: Result) -> str:
    first, last = cell_text(result.loss_first), cell_text(result.loss_last)
    return f"loss {first} -> {last} in {result.steps} steps"


def _curves(log: Log) -> list[Plot]:
    return [
        Plot(title=title, x="optimizer step", y=y, log_y=log_y, dots=False, series=series)
        for title, y, names, log_y in CURVES
        if (series := [Series(name, points) for name in names if (points := _points(log, name))])
    ]


def _points(log: Log, name: str) -> list[tuple[float, float | None]]:
    found: list[tuple[float, float | None]] = []
    for line in log:
        step, value = line.get("step"), line.get(name)
        if isinstance(step, int | float) and isinstance(value, int | float):
            found.append((float(step), float(value)))
    return found


def _updates(updates: Sequence[Update]) -> Table:
    return Table(
        title="Versions that served",
        columns=[
            "version",
            "step",
            "reward",
            "k3",
            "mean |Δlogp|",
            "samples",
            "write s",
            "publish s",
            "swap s",
        ],
        rows=[
            [
                one.version,
                one.step,
                one.reward,
                one.k3,
                one.mean,
                one.samples,
                one.write_s,
                one.publish_s,
                one.swap_s,
            ]
            for one in updates
        ],
    )


def _loop(updates: Sequence[Update]) -> tuple[Plot, Plot, Plot]:
    steps = [float(one.step) for one in updates]

    def series(name: str, values: Sequence[float | None]) -> Series:
        return Series(name, list(zip(steps, values, strict=True)))

    return (
        Plot(
            title="Reward of the served versions",
            x="optimizer step",
            y="mean reward",
            series=[series("reward", [one.reward for one in updates])],
        ),
        Plot(
            title="Trainer against engine",
            x="optimizer step",
            y="nats",
            log_y=True,
            series=[
                series("k3", [one.k3 for one in updates]),
                series("mean |Δlogp|", [one.mean for one in updates]),
            ],
            note="How far what the engines computed is from what the trainer computed of the same samples.",
        ),
        Plot(
            title="From the optimizer to the engines",
            x="optimizer step",
            y="seconds",
            series=[
                series("write and publish", [one.write_s + one.publish_s for one in updates]),
                series("swap of all engines", [one.swap_s for one in updates]),
            ],
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training.report", description="A training run as one page."
    )
    parser.add_argument("output", type=Path, help="the run's `training.output_dir`")
    parser.add_argument("--out", type=Path, help="the page (default: report.html in that folder)")
    given = parser.parse_args(arguments)
    try:
        page = write(report_of(given.output), given.out or given.output / "report.html")
    except (NoRun, OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
