"""What the doctor says: a finding with its level and its remedy."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing to do."""
    WARNING = "warning"
    """Works, but not as well or as long as it should."""
    ERROR = "error"
    """Something will not work."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    topic: str
    level: Level
    text: str
    mend: str = ""
    """What to do; empty where all is well."""


def ok(topic: str, text: str) -> Finding:
    return Finding(topic, Level.OK, text)


def note(topic: str, text: str, mend: str = "") -> Finding:
    return Finding(topic, Level.NOTE, text, mend)


def warning(topic: str, text: str, mend: str) -> Finding:
    return Finding(topic, Level.WARNING, text, mend)


def error(topic: str, text: str, mend: str) -> Finding:
    return Finding(topic, Level.ERROR, text, mend)
