"""Which version of the distribution runs here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "changeover"


def installed_version() -> str:
    """The distribution's version; `unknown` where it runs without being installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
