"""What should be served: the store's alias `serving`, else the base. Blocking, from any thread.

What was read last is kept on disk for the time when the store cannot be reached: an engine that comes back
then must not go back to what was served before that.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from backends.versions import BASE
from checkpoints.errors import StoreError
from checkpoints.store.aliases import SERVING
from checkpoints.store.store import Store


class _Seen(msgspec.Struct):
    version: int
    generation: int


class Wanted:
    def __init__(self, store: Store, memory: Path) -> None:
        """`memory`: a file that this process and its successors may write."""
        self._store = store
        self._memory = memory

    def read(self) -> int:
        """The version's number, BASE where the alias points nowhere. Raises StoreError.

        Where the store fails, what was read last counts.
        """
        try:
            alias = self._store.aliases.read(SERVING)
        except (StoreError, OSError) as error:
            return self._remembered(error)
        version = BASE if alias.version is None else alias.version
        self._remember(_Seen(version, alias.generation))
        return version

    def _remembered(self, error: Exception) -> int:
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=_Seen).version
        except (OSError, msgspec.DecodeError):
            raise StoreError(f"what should be served is not known: {error}") from error

    def _remember(self, seen: _Seen) -> None:
        fresh = self._memory.with_name(f".{self._memory.name}.{os.getpid()}")
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(seen))
            fresh.replace(self._memory)
        except OSError:
            fresh.unlink(missing_ok=True)  # a full disk must not keep an engine from serving
