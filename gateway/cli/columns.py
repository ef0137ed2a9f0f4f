"""Tables for terminals of any width: what matters least is left out until the rest fits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

T = TypeVar("T")

GAP = 2
"""Cells between two columns."""
EMPTY = ("", "-")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table of `T`."""

    title: str
    text: Callable[[T], str]
    spare: int = 0
    """What has the most is left out first; 0: never."""
    right: bool = False
    style: Callable[[T], str] | None = None


def fitting(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[Column[T]]:
    """Those that fit into `width` cells, in their order; columns that say nothing go before any other."""
    kept = [
        column for column in columns if not column.spare or any(column.text(row) not in EMPTY for row in rows)
    ]
    while sum(_width(column, rows) for column in kept) + GAP * (len(kept) - 1) > width:
        spare = max(kept, key=lambda column: column.spare)
        if not spare.spare:
            break
        kept.remove(spare)
    return kept


def table(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> Table:
    """A table of the columns that fit."""
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    shown = fitting(columns, rows, width)
    for column in shown:
        made.add_column(
            column.title, justify="right" if column.right else "left", overflow="ellipsis", no_wrap=True
        )
    for row in rows:
        made.add_row(
            *(Text(column.text(row), style=column.style(row) if column.style else "") for column in shown)
        )
    return made


def _width(column: Column[T], rows: Sequence[T]) -> int:
    return max([cell_len(column.title), *(cell_len(column.text(row)) for row in rows)])
