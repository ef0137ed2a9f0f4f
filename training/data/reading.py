"""What a reader yields: records one by one, each with its place, odd ones with what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Record = Mapping[str, object]

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""Longest line or record; what is longer is no record but a file of another kind."""


@dataclass(frozen=True, slots=True)
class Read:
    """One record, or what is wrong with it."""

    place: str
    """`train.jsonl line 3`"""
    record: Record | None
    problem: str = ""
    """Set if `record` is None."""
