"""Common ground of the storages that cannot rename a folder at once (S3, HDFS over HTTP).

Data goes to a place of its own (`data/<random>/…`) that nothing points at; the manifest, created
exclusively under the version's number, names that place and is what makes the version exist. What
a killed writer left is data that no manifest names, removed when it is old enough.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from checkpoints.digest import OnBytes, Reading, Source
from checkpoints.errors import StoreError
from checkpoints.manifest import MANIFEST_FILE, FileEntry

ORPHAN_AGE_S = 24 * 3600.0
"""Data that no manifest names is left alone for a day: its writer may still be copying."""


class Objects(Protocol):
    """What `ObjectStaging` needs of its storage."""

    def create(self, path: str, data: bytes) -> bool:
        """As in `Files`."""

    def remove(self, path: str) -> None:
        """As in `Files`."""

    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        """Write a file of any size from a stream."""


class ObjectStaging:
    """Implements `Staging`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._data = f"data/{uuid.uuid4().hex}"
        self._committed = False

    def put(self, source: Source, reading: Reading) -> None:
        """See `Staging`."""
        self._objects.write(f"{self._data}/{source.path}", (bytes(chunk) for chunk in reading))

    def location(self, folder: str) -> str:
        """See `Staging`: independent of the number, which may still be lost to another publisher."""
        return self._data

    def commit(self, folder: str, manifest: bytes) -> bool:
        """See `Staging`."""
        self._committed = self._objects.create(f"{folder}/{MANIFEST_FILE}", manifest)
        return self._committed

    def discard(self) -> None:
        """See `Staging`."""
        if not self._committed:
            self._objects.remove(self._data)


def save(path: str, target: Path, chunks: Iterator[bytes], on_bytes: OnBytes | None) -> FileEntry:
    """Write a stream to a file of this machine, hashing it; raises `StoreError` if the disk fails."""
    sha, size = hashlib.sha256(), 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
                sha.update(chunk)
                size += len(chunk)
                if on_bytes is not None:
                    on_bytes(len(chunk))
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error
    return FileEntry(path, size, sha.hexdigest())
