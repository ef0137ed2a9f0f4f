"""Fixtures that tests of several packages share."""

from __future__ import annotations

from tests.engines import tiny_engines

__all__ = ["tiny_engines"]
