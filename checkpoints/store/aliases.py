"""Names that point at versions and move by compare-and-swap: `candidate`, `serving`, `last_good`.

Each move creates the next numbered file (`aliases/serving/0000000007.json`); creation is exclusive,
so of two movers that saw the same state one wins and the other gets `ConflictError`. Old numbers are
pruned, always keeping the newest `KEPT`; a mover so slow that its number may have been pruned and
reused notices it afterwards and counts as the loser.
"""

from __future__ import annotations

import msgspec

from checkpoints.errors import ConflictError, StoreError
from checkpoints.manifest import check_name
from checkpoints.store.contract import Files

CANDIDATE, SERVING, LAST_GOOD = "candidate", "serving", "last_good"
KEPT = 64
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
        folder = f"{_FOLDER}/{check_name('alias', name)}"
        for generation in reversed(self._generations(folder)):
            raw = self._files.read(f"{folder}/{generation:010d}.json")
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
        folder = f"{_FOLDER}/{check_name('alias', seen.name)}"
        moved = Alias(seen.name, version, seen.generation + 1, by, at, reason)
        path = f"{folder}/{moved.generation:010d}.json"
        if self._generations(folder)[-1:] not in ([], [seen.generation]) or not self._files.create(
            path, msgspec.json.encode(moved)
        ):
            raise self._conflict(seen)
        generations = self._generations(folder)
        if generations[-1] - moved.generation >= KEPT:
            self._files.remove(path)
            raise self._conflict(seen)
        for old in generations[:-KEPT]:
            self._files.remove(f"{folder}/{old:010d}.json")
        return moved

    def _generations(self, folder: str) -> list[int]:
        return [int(name[:10]) for name in self._files.names(folder) if name[:10].isdigit()]

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
