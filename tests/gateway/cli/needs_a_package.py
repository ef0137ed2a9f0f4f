"""A command whose dependency is never installed."""

from __future__ import annotations

import no_such_package  # type: ignore[import-not-found]


def fly() -> None:
    no_such_package.fly()
