"""One page for every measurement: tables, plots and the environment, in one file without links to outside.

`write(Report(title=…, tables=[…], plots=[…], facts={…}), path)`. Nothing but the drawing in `reports.plots`
is imported of the project; the page is `page.html`, which follows the reader's dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Literal

import msgspec

from reports import plots

TEMPLATE = Path(__file__).with_name("page.html")

WIDEST_CELL = 60
"""Characters of a cell in a terminal; the page shows all."""

Cell = str | float | int | None


class Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Rows under their heads; numbers are shown with four digits."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


class Series(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a plot."""

    name: str
    points: list[tuple[float, float | None]]
    """None: nothing was measured there."""


class Plot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Lines over an x axis; bars, where each series' first point is one (its y); or points, which agree where
    they lie on the diagonal."""

    title: str
    series: list[Series]
    x: str = ""
    """What the x axis shows, with its unit."""
    y: str = ""
    kind: Literal["lines", "bars", "points"] = "lines"
    log_x: bool = False
    log_y: bool = False
    dots: bool = True
    """Mark the points."""
    note: str = ""


class Report(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A whole page."""

    title: str
    lead: str = ""
    """What was measured, in one sentence."""
    verdict: str = ""
    """The line that the command ended with."""
    tables: list[Table] = msgspec.field(default_factory=list)
    plots: list[Plot] = msgspec.field(default_factory=list)
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    """What else there is to know."""
    about: str = "Environment"
    """What the facts are about: their heading."""


def write(report: Report, path: Path) -> Path:
    """Write the page, and its data as JSON beside it. Makes the folder. Returns the page's path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(report), encoding="utf-8")
    path.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return path


def page(report: Report) -> str:
    """The page as text."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(report.title),
        lead=escape(report.lead),
        verdict=f'<pre class="last">{escape(report.verdict)}</pre>' if report.verdict else "",
        tables="".join(map(_table, report.tables)),
        plots=f'<h2>Plots</h2><div class="plots">{"".join(map(_plot, report.plots))}</div>'
        if report.plots
        else "",
        facts=_facts(report.about, report.facts),
    )


def _facts(about: str, facts: dict[str, str]) -> str:
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return f"<h2>{escape(about)}</h2><dl>{listed}</dl>" if facts else ""


def _table(table: Table) -> str:
    heads = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2>{note}<div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(value: Cell) -> str:
    if isinstance(value, str):
        return f'<td class="text">{escape(value)}</td>' if len(value) > 24 else f"<td>{escape(value)}</td>"
    return f"<td>{cell_text(value)}</td>"


def cell_text(value: Cell) -> str:
    """A cell as a person reads it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"


def _plot(plot: Plot) -> str:
    if plot.kind == "bars":
        rows = [(series.name, _value(series.points[0][1])) for series in plot.series if series.points]
        drawing, legend = plots.bars(rows, plot.y, log=plot.log_y), ""
    elif plot.kind == "points":
        places = [(x, y) for series in plot.series for x, y in series.points if y is not None]
        drawing, legend = plots.points(places, (plot.x, plot.y)), ""
    else:
        series = [(s.name, [(x, _value(y)) for x, y in s.points]) for s in plot.series]
        x = plots.axis([x for _, points in series for x, _ in points], log=plot.log_x, from_zero=True)
        y = plots.axis([y for _, points in series for _, y in points], log=plot.log_y, from_zero=True)
        drawing = plots.lines(series, x, y, (plot.x, plot.y), dots=plot.dots)
        legend = _legend([name for name, _ in series])
    note = f"<figcaption>{escape(plot.note)}</figcaption>" if plot.note else ""
    return f"<figure><h3>{escape(plot.title)}</h3>{drawing}{legend}{note}</figure>"


def _value(y: float | None) -> float:
    return math.nan if y is None else y


def _legend(names: Sequence[str]) -> str:
    keys = (
        f'<span><svg viewBox="0 0 26 8"><line x1="0" x2="26" y1="4" y2="4" stroke-width="2.5" '
        f'stroke="var(--c{index % plots.COLOURS})" stroke-dasharray='
        f'"{plots.DASHES[index % len(plots.DASHES)]}"/></svg>{escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def text_table(table: Table) -> str:
    """The same table for a terminal."""
    rows = [table.columns, *([_short(cell_text(value)) for value in row] for row in table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    shown = [
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([shown[0], "-" * sum([*widths, 2 * (len(widths) - 1)]), *shown[1:]])


def _short(text: str) -> str:
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"
