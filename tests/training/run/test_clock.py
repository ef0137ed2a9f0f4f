"""Clocks of a run's processes."""

from __future__ import annotations

from training.run.clock import skew, skew_report


def test_the_clock_that_is_off_is_named_by_its_rank() -> None:
    readings = [100.0, 100.1, 105.5, 100.05]
    report = skew_report(readings, limit=2.0)
    assert report is not None
    assert "differ by 5.5 s, most at rank 2 (+5.4 s)" in report
    assert skew(readings) == 5.5


def test_clocks_that_agree_and_a_single_one_are_no_news() -> None:
    assert skew_report([1.0, 2.9], limit=2.0) is None
    assert skew_report([1.0], limit=0.1) is None
