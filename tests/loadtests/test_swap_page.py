"""The page of a run with swaps shows who answered when."""

from __future__ import annotations

from loadtests.samples import Outcome
from loadtests.swap.page import swaps_page
from loadtests.swap.traffic import Answer
from reports.page import page


def _answer(at: float, version: str, outcome: Outcome = Outcome.OK) -> Answer:
    return Answer(0, 100 + at, 100 + at + 0.5, outcome, version, -1.0, "said")


ANSWERS = [_answer(0, "v1-a"), _answer(0.2, "v1-a"), _answer(1.6, "v2-b"), _answer(2, "", Outcome.ERROR)]


def test_answers_are_counted_by_second_and_version() -> None:
    report = swaps_page("Swaps", ANSWERS, [(102.0, "v2-b")], [0.3], verdict="swaps=1", facts={})
    by_version = {series.name: series.points for series in report.plots[0].series}
    assert by_version == {
        "v1-a": [(0.0, 2.0), (1.0, 0.0), (2.0, 0.0)],
        "v2-b": [(0.0, 0.0), (1.0, 0.0), (2.0, 1.0)],
    }
    rows = {row[0]: row[1:] for row in report.tables[0].rows}
    assert rows == {"v2-b": [1, 0, 2.0], "v1-a": [2, 0, None], "none named": [0, 1, None]}


def test_a_run_without_answers_has_a_page_too() -> None:
    assert "<svg" in page(swaps_page("Swaps", [], [], [], verdict="swaps=0", facts={}))
