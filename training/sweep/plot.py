"""The plot of a sweep: a bar for each run that finished, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training.sweep.grid import Row, ranked, score

_MOST_BARS = 40


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write a PNG. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [row for row in ranked(rows) if row.result is not None][:_MOST_BARS]
    figure = Figure(figsize=(8, 1.2 + 0.35 * max(len(shown), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.barh([row.point.name for row in shown], [score(row) for row in shown], color="#3b6ea5")
    axes.invert_yaxis()
    axes.set_xlabel("loss (of records kept apart, where there are any; else of training)")
    axes.grid(visible=True, axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)
