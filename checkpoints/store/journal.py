"""The append-only record of what happened to a model: published, promoted, rolled back, verdicts, removed.

One file an entry, named by time and a random part, so that writers never meet. Nothing is ever
rewritten. Entries carry whatever numbers belong to the event.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import msgspec

from checkpoints.errors import StoreError
from checkpoints.store.contract import Files

_FOLDER = "journal"


class Entry(msgspec.Struct, frozen=True):
    """One event; `at` is UTC in ISO 8601 with microseconds."""

    at: str
    event: str
    version: int | None = None
    by: str = ""
    detail: dict[str, object] = msgspec.field(default_factory=dict)


class Journal:
    """The journal of one model."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def append(
        self, event: str, *, version: int | None = None, by: str = "", detail: dict[str, object] | None = None
    ) -> Entry:
        """Write an entry durably."""
        now = datetime.now(UTC)
        entry = Entry(now.isoformat(timespec="microseconds"), event, version, by, detail or {})
        self.append_once(entry, uuid.uuid4().hex[:8])
        return entry

    def append_once(self, entry: Entry, key: str) -> None:
        """Write an entry unless one of the same time and key is there: who repeats a step adds nothing."""
        at = datetime.fromisoformat(entry.at)
        self._files.create(f"{_FOLDER}/{at:%Y%m%dT%H%M%S.%f}-{key}.json", msgspec.json.encode(entry))

    def last(self, count: int = 50) -> list[Entry]:
        """The newest entries, oldest of them first."""
        names = self._files.names(_FOLDER)[-count:]
        raws = (self._files.read(f"{_FOLDER}/{name}") for name in names)
        return [_decode(raw) for raw in raws if raw is not None]


def _decode(raw: bytes) -> Entry:
    try:
        return msgspec.json.decode(raw, type=Entry)
    except msgspec.DecodeError as error:
        raise StoreError(f"a journal entry cannot be read: {error}") from error
