"""A store in an S3-compatible bucket, by `obstore`.

Exclusive creation is a conditional put (`If-None-Match: *`), which AWS, MinIO, SeaweedFS, R2 and
others honour; a store that silently ignores it would lose the guarantee that two publishers never
share a number, so that is tried once before the first version is published.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.exceptions import NotFoundError as ObjectMissing
from obstore.store import S3Store

from checkpoints.digest import OnBytes
from checkpoints.errors import NotFoundError, StoreError
from checkpoints.manifest import FileEntry
from checkpoints.store.contract import MAX_SMALL_BYTES
from checkpoints.store.objects import ORPHAN_AGE_S, ObjectStaging, save

_PART_BYTES = 16 * 1024 * 1024
"""Part of a multipart upload; 10,000 parts allow 160 GB a file."""


def open_s3(location: str, below: str, **config: Any) -> S3Files:
    """The bucket and prefix of `bucket/prefix`; `config` as obstore's `S3Store` takes it, else from AWS_*."""
    bucket, _, prefix = location.partition("/")
    full = "/".join(part for part in (prefix.strip("/"), below) if part)
    try:
        store = S3Store(bucket, prefix=full or None, **config)
    except BaseError as error:
        raise StoreError(f"s3://{location}: {error}") from error
    return S3Files(store, f"s3://{bucket}/{full}")


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise StoreError(f"{what}: {str(error).splitlines()[0]}") from error


class S3Files:
    """Implements `Files`."""

    def __init__(self, store: S3Store, name: str) -> None:
        self._store = store
        self._name = name
        self._is_conditional = False

    def names(self, folder: str) -> list[str]:
        """See `Files`."""
        with _translated(f"cannot list {self._name}/{folder}"):
            found = obstore.list_with_delimiter(self._store, prefix=f"{folder}/" if folder else None)
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)

    def read(self, path: str) -> bytes | None:
        """See `Files`."""
        with _translated(f"cannot read {self._name}/{path}"):
            try:
                found = obstore.get(self._store, path)
            except (ObjectMissing, FileNotFoundError):
                return None
            if found.meta["size"] > MAX_SMALL_BYTES:
                raise StoreError(f"{self._name}/{path}: more than {MAX_SMALL_BYTES} bytes")
            return bytes(found.bytes())

    def create(self, path: str, data: bytes) -> bool:
        """See `Files`: a conditional put."""
        if not self._is_conditional:
            self._try_condition()
        return self._put_new(path, data)

    def remove(self, path: str) -> None:
        """See `Files`: the folder's manifest first, so that no version is seen without its files."""
        with _translated(f"cannot remove {self._name}/{path}"):
            below = [entry["path"] for page in obstore.list(self._store, prefix=f"{path}/") for entry in page]
            if below:
                obstore.delete(self._store, below)
            else:
                try:
                    obstore.delete(self._store, path)
                except (ObjectMissing, FileNotFoundError):
                    return

    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        """See `Objects`: a multipart upload of bounded memory."""
        with _translated(f"cannot write {self._name}/{path}"):
            obstore.put(
                self._store, path, chunks, chunk_size=_PART_BYTES, max_concurrency=4, use_multipart=True
            )

    def stage(self) -> ObjectStaging:
        """See `Files`."""
        return ObjectStaging(self)

    def fetch(self, path: str, target: Path, on_bytes: OnBytes | None) -> FileEntry:
        """See `Files`."""
        with _translated(f"cannot fetch {self._name}/{path}"):
            try:
                stream = obstore.get(self._store, path).stream()
            except (ObjectMissing, FileNotFoundError) as error:
                raise NotFoundError(f"{path}: not in the store") from error
            return save(path, target, (bytes(chunk) for chunk in stream), on_bytes)

    def local(self, path: str) -> Path | None:
        """See `Files`."""
        return None

    def sweep(self, named: Callable[[], set[str]]) -> list[str]:
        """See `Files`: data that no manifest names and that is older than a day."""
        before = datetime.now(UTC) - timedelta(seconds=ORPHAN_AGE_S)
        old: set[str] = set()
        young: set[str] = set()
        with _translated(f"cannot sweep {self._name}"):
            for page in obstore.list(self._store, prefix="data/"):
                for entry in page:
                    place = "/".join(entry["path"].split("/")[:2])
                    (old if entry["last_modified"] < before else young).add(place)
        orphans = sorted(old - young - named()) if old - young else []
        for place in orphans:
            self.remove(place)
        return orphans

    def _try_condition(self) -> None:
        probe = f"conditional-put/{uuid.uuid4().hex}"
        first, second = self._put_new(probe, b"1"), self._put_new(probe, b"2")
        self.remove(probe)
        if not first or second:
            raise StoreError(f"{self._name} does not honour conditional puts: two publishers could collide")
        self._is_conditional = True

    def _put_new(self, path: str, data: bytes) -> bool:
        with _translated(f"cannot write {self._name}/{path}"):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, FileExistsError):
                return False
        return True
