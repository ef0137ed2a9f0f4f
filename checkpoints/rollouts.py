"""The record of how a version comes to serve: one document a model, changed by compare-and-swap.

Whoever leads decides from this record and from what engines say of themselves, and writes each decision
here before it acts on it, so that anyone can go on where another stopped. Beside it stands the quarantine:
weights that were refused or taken back, by content digest, which are not tried again unless told.
Used by the gateway; the rules by which a rollout moves on are `gateway.rollout.plan`'s.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from checkpoints.errors import ConflictError, StoreError
from checkpoints.store.contract import Files
from checkpoints.store.generations import Generations

T = TypeVar("T")

_STATES, _QUARANTINE = "rollout/states", "rollout/quarantine"
KEPT = 256
"""States that are kept: some dozens of rollouts."""


class Stage(StrEnum):
    """Where a rollout stands. The last four are its ends."""

    VERIFYING = "verifying"
    PREPARING = "preparing"
    """Every member fetches and verifies; all serve on."""
    CANARY = "canary"
    ROLLING = "rolling"
    PROMOTING = "promoting"
    """Every member took it; `serving` moves, and who is held is released."""
    ROLLING_BACK = "rolling_back"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"
    """No engine was touched."""
    SUPERSEDED = "superseded"
    """A newer version takes its place."""


ENDED = frozenset({Stage.PROMOTED, Stage.ROLLED_BACK, Stage.REFUSED, Stage.SUPERSEDED})


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One state of one rollout; times are Unix seconds."""

    id: str
    model: str
    version: int
    """0: the base model."""
    label: str
    """What answers are marked with; `base` for the base model, whose label the engines know."""
    digest: str
    """Of the manifest; empty for the base model."""
    from_version: int
    from_label: str
    mode: str
    """A value of `gateway.settings.rollout.RolloutMode`."""
    stage: Stage = Stage.VERIFYING
    share: float = 0.0
    """Of the requests that the new version answers while it is a canary."""
    shadow: float = 0.0
    """Of the requests that the new version answers as well, unseen, before it gets its share."""
    sticky: str | None = None
    """Header by whose value requests stay with one version."""
    paused: bool = False
    forced: bool = False
    """An operator has seen what there is: no evidence is waited for, no quarantine heeded."""
    started: float = 0.0
    since: float = 0.0
    """When it came into this stage."""
    by: str = ""
    """Who made this state."""
    reason: str = ""
    """Why it is in this stage."""
    evidence: dict[str, object] = {}
    """What the last decision rests on."""
    blamed: bool = False
    """The weights are at fault: they belong into quarantine."""
    newest: int = 0
    """The newest version when it began: by itself only what is newer is rolled out after it."""
    supersedes: str = ""
    """The rollout in whose place it stands. Such a one is not superseded itself before engines serve it."""
    generation: int = 0

    @property
    def active(self) -> bool:
        """It has not ended."""
        return self.stage not in ENDED


class Quarantined(msgspec.Struct, frozen=True):
    """Weights that are not to be tried again."""

    digest: str
    version: int
    reason: str
    by: str = ""
    at: float = 0.0


class Rollouts:
    """The rollouts of one model. Every method may block."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._states = Generations(files, _STATES, KEPT)

    def read(self) -> Rollout | None:
        """The present state of the rollout that runs, or of the last one."""
        raw = self._states.newest()
        return _decode(raw, Rollout) if raw is not None else None

    def write(self, rollout: Rollout) -> Rollout:
        """Make this the next state after the one with `rollout.generation`; returns it as it was written.

        Raises:
            ConflictError: the state is another by now; read it again and decide anew.
        """
        new = msgspec.structs.replace(rollout, generation=rollout.generation + 1)
        if not self._states.add(new.generation, msgspec.json.encode(new)):
            raise ConflictError("somebody else has moved the rollout on: look at it again")
        return new

    def history(self, count: int = KEPT) -> list[Rollout]:
        """The last state of each of the newest rollouts, the newest first."""
        found: dict[str, Rollout] = {}
        for raw in self._states.last(KEPT):
            state = _decode(raw, Rollout)
            found.setdefault(state.id, state)
        return list(found.values())[:count]

    def states(self, rollout_id: str) -> list[Rollout]:
        """The states of one rollout that are still kept, the oldest first."""
        known = [_decode(raw, Rollout) for raw in self._states.last(KEPT)]
        return [state for state in reversed(known) if state.id == rollout_id]

    def needed(self) -> set[int]:
        """Versions that the present rollout may still need."""
        state = self.read()
        if state is None or not state.active:
            return set()
        return {state.version, state.from_version} - {0}

    def quarantine_names(self) -> list[str]:
        """Changes when what is in quarantine does; cheaper than reading it."""
        return self._files.names(_QUARANTINE)

    def quarantined(self) -> dict[str, Quarantined]:
        """What is not to be tried again, by digest."""
        raws = (self._files.read(f"{_QUARANTINE}/{name}") for name in self._files.names(_QUARANTINE))
        found = (_decode(raw, Quarantined) for raw in raws if raw is not None)
        return {each.digest: each for each in found}

    def quarantine(self, entry: Quarantined) -> None:
        """Keep these weights out. The first reason stays."""
        if entry.digest:
            self._files.create(_path(entry.digest), msgspec.json.encode(entry))

    def lift(self, digest: str) -> None:
        """Let these weights be tried again."""
        if digest:
            self._files.remove(_path(digest))


def _path(digest: str) -> str:
    return f"{_QUARANTINE}/{digest}.json"


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise StoreError(f"the record of rollouts cannot be read: {error}") from error
