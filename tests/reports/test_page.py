from __future__ import annotations

import math
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from reports.page import Plot, Report, Series, Table, page, text_table, write
from reports.plots import Axis, axis, number

REPORT = Report(
    title="A <title> & more",
    lead="What & why",
    verdict="ratio=1.0",
    tables=[Table(title="T", columns=["name", "n"], rows=[["<b>", 12345], ["none", math.nan]])],
    plots=[
        Plot(title="L", x="ms", y="%", log_x=True, series=[Series("a", [(1.0, 1.0), (10.0, None)])]),
        Plot(title="B", kind="bars", y="MB", series=[Series("b", [(0.0, 5.0)])]),
        Plot(title="empty", series=[]),
    ],
    facts={"commit": "abc"},
)
VOID = {"meta", "br"}


class Nesting(HTMLParser):
    """Fails on tags that are closed in another order than they were opened; collects addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_well_formed_and_asks_nothing_of_the_network() -> None:
    text = page(REPORT)
    reader = Nesting()
    reader.feed(text)
    assert reader.open == []
    assert reader.addresses == []
    assert "http" not in text
    assert "&lt;b&gt;" in text and "12,345" in text


def test_a_page_is_written_with_its_data_beside_it(tmp_path: Path) -> None:
    path = write(REPORT, tmp_path / "new" / "r.html")
    assert path.read_text() == page(REPORT)
    again = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Report)
    assert page(again).replace("–", "") == page(REPORT).replace("–", "")


def test_a_table_for_the_terminal_lines_up() -> None:
    lines = text_table(REPORT.tables[0]).splitlines()
    assert len({len(line) for line in lines[1:3]}) == 1
    assert lines[2].endswith("12,345") and lines[3].endswith("–")


@pytest.mark.parametrize("values", [[0.0, 97.0], [3.0, 3.0], [0.001, 0.0042], [-5.0, 5.0], []])
def test_an_axis_holds_all_values_between_round_ticks(values: list[float]) -> None:
    found = axis(values, log=False, from_zero=True)
    assert all(0 <= found.place(value) <= 1 for value in values)
    assert 3 <= len(found.ticks()) <= 8


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show() -> None:
    found = axis([0.0, 0.5, 400.0], log=True, from_zero=False)
    assert found == Axis(0.1, 1000.0, log=True)
    assert found.ticks() == pytest.approx([0.1, 1, 10, 100, 1000])


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0, 0.1234567, 1234.5, 45_000, 2.5e6, math.inf)] == [
        "0",
        "0.1235",
        "1234",
        "45k",
        "2.5M",
        "–",
    ]


def test_points_lie_where_both_axes_say() -> None:
    text = page(
        Report(title="P", plots=[Plot(title="p", kind="points", series=[Series("s", [(-2.0, -2.0)])])])
    )
    assert text.count('class="point"') == 1
    assert 'class="equal"' in text


def test_a_report_written_down_as_json_is_made_into_its_page(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(REPORT))
    command = [sys.executable, "-m", "reports", str(tmp_path / "r.json"), str(tmp_path / "r.html")]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "r.html").read_text() == page(REPORT)
