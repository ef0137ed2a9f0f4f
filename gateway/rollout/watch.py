"""What the store says of one model, read as one: what should be served, what is new, what rolls out.

Everything here blocks and is called in a thread. What never changes (a version's digest) is read once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from backends.versions import BASE, label_of
from checkpoints.errors import ManifestError, NotFoundError, SignatureError
from checkpoints.precheck import refusal
from checkpoints.rollouts import Quarantined, Rollout
from checkpoints.store.aliases import CANDIDATE, LAST_GOOD, SERVING
from checkpoints.store.store import Store
from gateway.rollout.journal import entry_of
from gateway.rollout.view import BASE_MODEL, Checked, Weights

logger = logging.getLogger(__name__)

KNOWN = 256
"""Versions whose digests are remembered."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The store at one moment."""

    record: Rollout | None = None
    serving: Weights = BASE_MODEL
    candidate: Weights | None = None
    quarantined: Mapping[str, Quarantined] = field(default_factory=dict)


class Book:
    """One model's store, as rollouts use it. From one thread at a time. Raises CheckpointError."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: OrderedDict[int, Weights] = OrderedDict()
        self._unusable: int | None = None
        self._quarantined: tuple[list[str], dict[str, Quarantined]] = ([], {})

    def read(self) -> Recorded:
        """All of it. A serving version that cannot be read is an error; such a candidate is none."""
        return Recorded(
            self.store.rollouts.read(),
            self.weights(self.store.aliases.read(SERVING).version or BASE),
            self._candidate(),
            self._read_quarantine(),
        )

    def weights(self, number: int) -> Weights:
        """A version's label and digest. Raises NotFoundError, ManifestError, SignatureError."""
        if number == BASE:
            return BASE_MODEL
        known = self._known.get(number)
        if known is None:
            digest = self.store.manifest(number).digest
            known = self._known[number] = Weights(number, label_of(number, digest), digest)
            while len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return known

    def check(self, version: int, served: int, *, probe_required: bool) -> Checked:
        """The static check from the records alone."""
        if version == BASE:
            return Checked(version, None)
        against = served if served != BASE else None
        return Checked(version, refusal(self.store, version, against, probe_required=probe_required))

    def save(self, record: Rollout) -> Rollout:
        """Write the next state, then its journal entry. Raises ConflictError."""
        written = self.store.rollouts.write(record)
        self.note(written)
        return written

    def note(self, record: Rollout) -> None:
        """Make sure that the journal has an entry of this state: whoever wrote the state may have died."""
        entry, key = entry_of(record)
        self.store.journal.append_once(entry, key)

    def serve(self, version: int, *, by: str, reason: str) -> None:
        """Point `serving` there, and `last_good` at what was served before. Raises ConflictError."""
        aliases = self.store.aliases
        before = aliases.read(SERVING)
        if (before.version or BASE) == version:
            return
        if before.version is not None and aliases.read(LAST_GOOD).version != before.version:
            self.store.point(LAST_GOOD, before.version, by=by, reason="served before")
        if version != BASE:
            self.store.point(SERVING, version, seen=before, by=by, reason=reason)
            return
        aliases.move(before, None, by=by, at=datetime.now(UTC).isoformat(), reason=reason)
        detail: dict[str, object] = {"from": before.version, "reason": reason}
        self.store.journal.append(f"alias {SERVING}", by=by, detail=detail)

    def _candidate(self) -> Weights | None:
        number = self.store.aliases.read(CANDIDATE).version
        if number is None or number == self._unusable:
            return None
        try:
            return self.weights(number)
        except (NotFoundError, ManifestError, SignatureError) as error:
            self._unusable = number
            logger.warning("%s: version %d is not rolled out: %s", self.store.model, number, error)
            return None

    def _read_quarantine(self) -> Mapping[str, Quarantined]:
        names = self.store.rollouts.quarantine_names()
        if names != self._quarantined[0]:
            self._quarantined = (names, self.store.rollouts.quarantined())
        return self._quarantined[1]
