"""Records in a model's store: `qualification/<combination's key>/<time>-<random>.json`, the newest counts.

Nothing is rewritten, writers never meet, and only the newest `KEPT` of a combination stay. A record that
cannot be believed counts as none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from backends.qualify.combination import Combination, differences
from backends.qualify.record import Record, RecordInvalid, decode, encode, seal
from checkpoints.store.contract import Files

FOLDER = "qualification"
KEPT = 8
LISTED = 200
"""Combinations that are looked at for a list, newest names last."""


def keep(files: Files, record: Record) -> Record:
    """Write a record durably; returns it sealed. Raises StoreError."""
    sealed = seal(record)
    folder = f"{FOLDER}/{record.combination.key}"
    stamp = "".join(letter for letter in record.at if letter.isdigit())[:20]
    files.create(f"{folder}/{stamp}-{uuid.uuid4().hex[:8]}.json", encode(sealed))
    for old in files.names(folder)[:-KEPT]:
        files.remove(f"{folder}/{old}")
    return sealed


def find(files: Files, combination: Combination) -> Record | None:
    """The newest believable record of exactly this combination. Raises StoreError."""
    found = _newest(files, combination.key)
    return found if found is not None and found.combination == combination else None


def every(files: Files) -> Iterator[Record]:
    """The newest record of each combination, at most `LISTED`. Raises StoreError."""
    for key in files.names(FOLDER)[-LISTED:]:
        found = _newest(files, key)
        if found is not None:
            yield found


def why_none(files: Files, combination: Combination) -> str:
    """One sentence for people: what the nearest record is of, where there is none for this combination."""
    apart = [differences(record.combination, combination) for record in every(files)]
    if not apart:
        return "nothing was qualified yet"
    fewest = min(len(words) for words in apart)
    nearest = next(words for words in apart if len(words) == fewest)
    return f"the nearest record is of {', '.join(nearest)}"


def _newest(files: Files, key: str) -> Record | None:
    folder = f"{FOLDER}/{key}"
    for name in reversed(files.names(folder)):
        raw = files.read(f"{folder}/{name}")
        try:
            if raw is not None:
                return decode(raw)
        except RecordInvalid:
            continue
    return None
