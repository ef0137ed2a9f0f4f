"""The signed-off result of one qualification, and its bytes. Pure.

A record holds the digest of itself, so that one that was cut short or altered by hand is not believed.
Whoever can write to the store can also write a record: it is as trustworthy as the store is.
"""

from __future__ import annotations

import hashlib

import msgspec

from backends.qualify.combination import Combination
from backends.qualify.compare import Difference
from backends.qualify.judge import Check, Verdict

SCHEMA = 1


class RecordInvalid(ValueError):
    """Not a record, of another schema, or altered."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found for one combination, with its numbers."""

    schema: int
    combination: Combination
    verdict: Verdict
    reason: str
    checks: tuple[Check, ...]
    moved: Difference | None
    """Between cold starts on the two weights; None where the engine did not get so far."""
    floor: Difference | None
    """Between two cold starts on the same weights; None: not needed, everything was equal."""
    reload_s: float
    """The bare `reload_weights`, the slowest of the run."""
    seconds: float
    """The whole qualification."""
    at: str
    """UTC, ISO 8601."""
    by: str
    digest: str = ""
    """sha256 of the rest."""

    @property
    def qualified(self) -> bool:
        return self.verdict is Verdict.QUALIFIED


def seal(record: Record) -> Record:
    """The record with its digest."""
    return msgspec.structs.replace(record, digest=_digest(record))


def encode(record: Record) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(raw: bytes) -> Record:
    """Raises RecordInvalid."""
    try:
        record = msgspec.json.decode(raw, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordInvalid(f"not a record of a qualification: {error}") from error
    if record.schema != SCHEMA:
        raise RecordInvalid(f"schema {record.schema}, this program reads {SCHEMA}")
    if record.digest != _digest(record):
        raise RecordInvalid("it was altered after it was written")
    return record


def _digest(record: Record) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(record, digest=""))).hexdigest()
