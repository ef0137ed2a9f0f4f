"""What users said of answers, as JSON lines in a model's store: written by gateways, read by trainers.

Files are created once, with many entries each, and named by time, so that they sort. The oldest are removed
when there are too many.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from checkpoints.errors import StoreError
from checkpoints.store.contract import Files

FOLDER = "feedback"
KEPT_FILES = 10_000
MAX_TEXT = 16_384

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


class Feedback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One user's word on one answer."""

    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[!-~]+$")]
    """`x-request-id` of the answer."""
    rating: Annotated[float, msgspec.Meta(ge=-1, le=1)]
    """-1 (bad) to 1 (good)."""
    index: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None
    """Which of several answers (`n`) to the request. None: all."""
    comment: Text = ""
    prompt: Text | None = None
    """What was asked. With `completion` it makes an offline sample of an answer that no trainer asked for."""
    completion: Text | None = None
    """What was answered."""
    by: str = ""
    """Whose API key. Set by the gateway."""
    at: str = ""
    """UTC, ISO 8601. Set by the gateway."""


class FeedbackFiles:
    """The entries of one model. Every method may block and raises StoreError."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def add(self, entries: Sequence[Feedback]) -> None:
        """Keep them, all in one file."""
        if not entries:
            return
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{uuid.uuid4().hex[:8]}.jsonl"
        if not self._files.create(f"{FOLDER}/{name}", msgspec.json.Encoder().encode_lines(entries)):
            raise StoreError(f"{FOLDER}/{name} exists already")

    def read(self, last_files: int = KEPT_FILES) -> list[Feedback]:
        """Those of the newest files, the oldest first. Lines that cannot be read are left out."""
        found: list[Feedback] = []
        for name in self._files.names(FOLDER)[-last_files:]:
            found += _decode(self._files.read(f"{FOLDER}/{name}") or b"")
        return found

    def prune(self, keep: int = KEPT_FILES) -> None:
        """Remove the oldest files."""
        for name in self._files.names(FOLDER)[:-keep]:
            self._files.remove(f"{FOLDER}/{name}")


def _decode(raw: bytes) -> list[Feedback]:
    entries = []
    for line in raw.splitlines():
        try:
            entries.append(msgspec.json.decode(line, type=Feedback))
        except msgspec.DecodeError:
            continue
    return entries
