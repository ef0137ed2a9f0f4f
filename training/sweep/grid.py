"""Which runs a sweep consists of, and how they compare. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training.config.names import advice, canonical
from training.config.problems import ConfigError
from training.run.result import Result

MAX_RUNS = 500
"""More is a mistake, or work for a scheduler."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of the sweep."""

    name: str
    """Its folder: `lr=1e-05,batch_size=8`."""
    values: Mapping[str, object]
    """By dotted key."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run and how it ended."""

    point: Point
    result: Result | None
    """None: it failed."""


def grid(values: Mapping[str, object], name: str) -> list[Point]:
    """Each combination of the values of each option. Raises ConfigError.

    values: lists by the name of an option (`lr`, `training.lr`); name: the file, for messages.
    """
    axes: dict[str, Sequence[object]] = {}
    problems = []
    for word, given in values.items():
        key = canonical(word)
        if key is None:
            problems.append(f"{name}: {word}: is no known option; {advice(word)}")
        elif key in axes:
            problems.append(f"{name}: {word}: {key} is given twice")
        elif not isinstance(given, list) or not given:
            problems.append(f"{name}: {word}: should be a list of values to try, like [1e-5, 5e-5]")
        else:
            axes[key] = given
    if not axes and not problems:
        problems.append(f"{name}: names no option; like `lr: [1e-5, 5e-5]`")
    if problems:
        raise ConfigError(problems)
    points = [
        Point(_name(dict(zip(axes, each, strict=True))), dict(zip(axes, each, strict=True)))
        for each in itertools.product(*axes.values())
    ]
    if len(points) > MAX_RUNS:
        raise ConfigError([f"{name}: makes {len(points)} runs; at most {MAX_RUNS}"])
    return points


def _name(values: Mapping[str, object]) -> str:
    parts = [f"{key.rsplit('.', 1)[-1]}={value}" for key, value in values.items()]
    return ",".join(parts).replace("/", "_")


def score(row: Row) -> float:
    """Lower is better: the loss on records kept apart if there are any, else the last training loss."""
    if row.result is None:
        return float("inf")
    for loss in (row.result.eval_loss, row.result.loss_last):
        if loss is not None and loss == loss:
            return loss
    return float("inf")


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The best first; failed ones last."""
    return sorted(rows, key=score)


COLUMNS = ("loss_first", "loss_last", "eval_loss", "steps", "seconds")


def table(rows: Sequence[Row]) -> list[list[str]]:
    """A head and a line for each run, the best first."""
    if not rows:
        return []
    keys = list(rows[0].point.values)
    lines = [[*keys, *COLUMNS]]
    for row in ranked(rows):
        own = [str(row.point.values[key]) for key in keys]
        lines.append([*own, *_numbers(row.result)])
    return lines


def _numbers(result: Result | None) -> list[str]:
    if result is None:
        return ["failed", *[""] * (len(COLUMNS) - 1)]
    losses = (result.loss_first, result.loss_last, result.eval_loss)
    return [
        *("" if loss is None else f"{loss:.4f}" for loss in losses),
        str(result.steps),
        f"{result.seconds:.1f}",
    ]


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The table for a terminal."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
