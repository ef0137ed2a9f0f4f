"""Carries out a sweep: each run is a process of its own, in a folder of its own below `training.output_dir`.

A run that finished before is not repeated, one that was cut off goes on; one that fails is a line of the
table. Ends with sweep.csv and sweep.png beside the runs.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from training.config.command_line import CommandLine, parse_arguments
from training.config.files import read_file
from training.config.load import load
from training.run.result import read_result
from training.sweep.grid import Point, Row, aligned, grid, ranked, table
from training.sweep.plot import draw

STOPPED = 128
"""Exit codes above: a run was stopped by a signal, and so is the sweep."""


def sweep(line: CommandLine, environment: Mapping[str, str], script: Path) -> int:
    """Run all and compare them; 0 if at least one finished. Raises ConfigError before the first begins."""
    assert line.sweep is not None
    file = read_file(line.sweep, environment)
    points = grid(file.values, str(line.sweep))
    output = Path(load(replace(line, sweep=None), environment).config.training.output_dir)
    for point in points:  # all of them before the first: nobody wants to hear of it in the tenth
        load(parse_arguments(_words(line, point, output)), environment)
    rows = []
    for number, point in enumerate(points, start=1):
        sys.stderr.write(f"[{number}/{len(points)}] {point.name}\n")
        code = subprocess.run(
            [sys.executable, str(script), *_words(line, point, output)], check=False
        ).returncode
        if code > STOPPED or code < 0:
            sys.stderr.write("stopped; the same command goes on with this run\n")
            return code if code > 0 else STOPPED - code
        rows.append(Row(point, read_result(output / point.name) if code == 0 else None))
    _write(output, rows)
    sys.stdout.write(f"{aligned(table(rows))}\n")
    best = ranked(rows)[0]
    sys.stdout.write(f"best: {best.point.name if best.result else 'none finished'}\n")
    return 0 if best.result else 1


def _words(line: CommandLine, point: Point, output: Path) -> list[str]:
    """The command line of one run: the sweep's own, less what the point decides."""
    folder = output / point.name
    decided = {
        **{key: str(value) for key, value in point.values.items()},
        "training.output_dir": str(folder),
        "logs.folder": str(folder / "logs"),
        "metrics.port": "0",
    }
    kept = []
    for word, value in zip(line.words[::2], line.words[1::2], strict=True):
        given = parse_arguments([word, value]).values
        if not given.keys() & decided.keys():
            kept += [word, value]
    return [*kept, *(word for key, value in decided.items() for word in (f"--{key}", value))]


def _write(output: Path, rows: list[Row]) -> None:
    with (output / "sweep.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table(rows))
    draw(rows, output / "sweep.png")
