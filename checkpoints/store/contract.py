"""What a store asks of a storage: exclusive creation of small files, whole folders, streaming.

`create` is the one primitive all ordering rests on: it makes a complete, durable file or, when
there is one already, changes nothing and says so (`link` on a disk, `If-None-Match: *` on S3,
`overwrite=false` on HDFS). Paths are relative POSIX paths below the store's root. Failures of the
storage are raised as `StoreError`. Implementations may be used from several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from checkpoints.digest import OnBytes, Reading, Source
from checkpoints.manifest import FileEntry

MAX_SMALL_BYTES = 64 * 1024 * 1024
"""Largest file that is read whole (manifests, tensor indexes, probes)."""


class Staging(Protocol):
    """Files on their way in, invisible until `commit`."""

    def put(self, source: Source, reading: Reading) -> None:
        """Store a file while `reading` is iterated to its end; several threads may put at a time."""

    def location(self, folder: str) -> str:
        """Where the data will be once it is committed as `folder`."""

    def commit(self, folder: str, manifest: bytes) -> bool:
        """Make everything durable, then visible as `folder`, manifest last. False: it exists already."""

    def discard(self) -> None:
        """Throw away what was put, if it was not committed."""


class Files(Protocol):
    """A storage."""

    def names(self, folder: str) -> list[str]:
        """Files and folders directly in a folder, sorted; none if it does not exist."""

    def read(self, path: str) -> bytes | None:
        """A small file's bytes, or None; raises `StoreError` above `MAX_SMALL_BYTES`."""

    def create(self, path: str, data: bytes) -> bool:
        """Create a whole file, durably; False, and nothing changes, if there is one."""

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder at once; nothing happens if it is not there.

        Of a folder the visible part goes first; the bytes may stay until the next `sweep`.
        """

    def stage(self) -> Staging:
        """Begin to bring files in."""

    def fetch(self, path: str, target: Path, on_bytes: OnBytes | None) -> FileEntry:
        """Copy a file to `target`, hashing the same bytes; raises `NotFoundError`."""

    def local(self, path: str) -> Path | None:
        """The folder on this machine's disk, where the storage is one."""

    def sweep(self, named: Callable[[], set[str]]) -> list[str]:
        """Remove what dead writers and removals left; returns what writers had left.

        `named` gives the locations that manifests name; it is slow and called only where needed.
        """
