"""Names that point at versions and move by compare-and-swap: `candidate`, `serving`, `last_good`.

Each move is the next state of one document (`checkpoints.store.generations`): of two movers that saw the
same state one wins and the other gets `ConflictError`.
"""

from __future__ import annotations

import msgspec

from checkpoints.errors import ConflictError, StoreError
from checkpoints.manifest import check_name
from checkpoints.store.contract import Files
from checkpoints.store.generations import Generations

CANDIDATE, SERVING, LAST_GOOD = "candidate", "serving", "last_good"
_FOLDER = "aliases"


class Alias(msgspec.Struct, frozen=True):
    """One state of an alias; `version` None: points nowhere."""

    name: str
    version: int | None
    generation: int
    by: str = ""
    at: str = ""
    reason: str = ""


class Aliases:
    """The aliases of one model."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, name: str) -> Alias:
        """The alias as it is; one that never moved has generation 0 and no version."""
        raw = self._states(name).newest()
        if raw is not None:
            return _decode(raw, name)
        return Alias(name, None, 0)

    def all(self) -> dict[str, Alias]:
        """Every alias that points somewhere."""
        found = (self.read(name) for name in self._files.names(_FOLDER))
        return {alias.name: alias for alias in found if alias.version is not None}

    def move(self, seen: Alias, version: int | None, *, by: str, at: str, reason: str = "") -> Alias:
        """Point the alias elsewhere if it is still as `seen`.

        Raises:
            ConflictError: it moved meanwhile; read it again and decide anew.
        """
        moved = Alias(seen.name, version, seen.generation + 1, by, at, reason)
        if not self._states(seen.name).add(moved.generation, msgspec.json.encode(moved)):
            raise self._conflict(seen)
        return moved

    def _states(self, name: str) -> Generations:
        return Generations(self._files, f"{_FOLDER}/{check_name('alias', name)}")

    def _conflict(self, seen: Alias) -> ConflictError:
        now = self.read(seen.name)
        return ConflictError(
            f"alias {seen.name} moved from {seen.version} to {now.version}, by {now.by or 'somebody else'}"
        )


def _decode(raw: bytes, name: str) -> Alias:
    try:
        return msgspec.json.decode(raw, type=Alias)
    except msgspec.DecodeError as error:
        raise StoreError(f"alias {name} cannot be read: {error}") from error
