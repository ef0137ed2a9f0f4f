"""Fixtures that tests of several packages share, and the summary of the fault catalogue."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.catalogue import FaultSummary
from tests.engines import tiny_engines

__all__ = ["tiny_engines"]

# No assertion on a time that a busy machine can break.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-summary", action="store_true", help="End with how many fault entries hold.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fault-summary"):
        config.pluginmanager.register(FaultSummary(), "fault-summary")
