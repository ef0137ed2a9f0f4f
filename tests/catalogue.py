"""The fault catalogue: every entry that has to hold, and a summary of which tests show that it does.

A test says `@pytest.mark.fault("A1")`. With `--fault-summary` a run ends in one line:
`faults=<passed>/<entries> kinds=<n> real_engine=<n>`: an entry passes if it has tests and all of them
passed; kinds are the tests behind them, real_engine those of them that ran on real engines.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest

ENTRIES = (
    *(f"A{number}" for number in range(1, 9)),
    *(f"B{number}" for number in range(1, 13)),
    *(f"C{number}" for number in range(1, 8)),
    *(f"D{number}" for number in range(1, 10)),
    *(f"E{number}" for number in range(1, 7)),
    *(f"G{number}" for number in (2, 3)),
    *(f"H{number}" for number in range(1, 5)),
    *("I1", "I2", "X1", "X2"),
    *(f"S{number}" for number in range(1, 14)),
    *("F8", "I3", "X3"),  # what swapping promises besides
)
"""What the request path promises. Further sections join with the parts that they are about."""


@dataclass
class FaultSummary:
    """A pytest plugin that counts."""

    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Entries by test."""
    engine: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            marks = [str(mark.args[0]) for mark in item.iter_markers("fault")]
            if marks:
                self.ids[item.nodeid] = tuple(marks)
                if item.get_closest_marker("engine"):
                    self.engine.add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self.ids:
            return
        if report.failed or (report.skipped and report.when == "setup"):
            self.failed.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(self.line())

    def line(self) -> str:
        good, bad = defaultdict(set), defaultdict(set)
        for nodeid, entries in self.ids.items():
            for entry in entries:
                (bad if nodeid in self.failed or nodeid not in self.passed else good)[entry].add(nodeid)
        entries = set(ENTRIES) | set(good) | set(bad)
        holding = {entry for entry in entries if entry in good and entry not in bad}
        missing = sorted(entries - holding)
        kinds = self.passed - self.failed
        real = kinds & self.engine
        note = f"not shown to hold: {' '.join(missing)}\n" if missing else ""
        return f"{note}faults={len(holding)}/{len(entries)} kinds={len(kinds)} real_engine={len(real)}"
