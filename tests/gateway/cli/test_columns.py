"""Tables keep what matters most in the width that there is."""

from __future__ import annotations

from rich.console import Console

from gateway.cli.columns import Column, fitting, table

Row = tuple[str, str, str]
COLUMNS: tuple[Column[Row], ...] = (
    Column("name", lambda row: row[0]),
    Column("middle", lambda row: row[1], spare=2),
    Column("last", lambda row: row[2], spare=1, right=True),
)
ROWS: list[Row] = [("alpha", "a long text", "7"), ("b", "short", "12")]


def _titles(width: int, rows: list[Row] = ROWS) -> list[str]:
    return [column.title for column in fitting(COLUMNS, rows, width)]


def test_everything_is_shown_where_there_is_room() -> None:
    assert _titles(24) == ["name", "middle", "last"]


def test_what_matters_least_goes_first() -> None:
    assert _titles(23) == ["name", "last"]
    assert _titles(10) == ["name"]


def test_what_is_never_left_out_stays_however_narrow_it_is() -> None:
    assert _titles(1) == ["name"]


def test_columns_that_say_nothing_are_left_out() -> None:
    assert _titles(80, [("alpha", "-", "7"), ("b", "", "8")]) == ["name", "last"]


def test_no_line_is_longer_than_the_terminal() -> None:
    for width in range(8, 40):
        console = Console(width=width, color_system=None)
        with console.capture() as captured:
            console.print(table(COLUMNS, ROWS, width))
        lines = captured.get().splitlines()
        assert len(lines) == 3
        assert all(len(line.rstrip()) <= width for line in lines)
