"""A store in a folder, on one machine or shared by many (NFS and the like).

A version is staged beside the others on the same filesystem, synced, and becomes visible by one
rename. A writer holds a file lock on its staging area, so what a killed writer left is told from
what a slow one is still writing, and swept. Removal renames first, so that nobody sees half of it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from checkpoints.digest import CHUNK_BYTES, OnBytes, Reading, Source
from checkpoints.errors import NotFoundError, SourceChangedError, StoreError
from checkpoints.manifest import MANIFEST_FILE, FileEntry
from checkpoints.store.contract import MAX_SMALL_BYTES

_STAGING, _TRASH = ".staging", ".trash"
_FICLONE = 0x40049409
"""ioctl of Linux (linux/fs.h) that makes one file share another's blocks."""


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreError(f"{what}: no room left; free some (changeover checkpoints gc)") from error
        raise StoreError(f"{what}: {error.strerror or error}") from error


class LocalFiles:
    """Implements `Files` in `root`, which is made when it is first written to."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def names(self, folder: str) -> list[str]:
        """See `Files`."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if not entry.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{self.root / folder}: {error.strerror}") from error

    def read(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            with Path(f"{self.root}/{path}").open("rb", buffering=0) as file:
                data = file.read(MAX_SMALL_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{self.root / path}: {error.strerror}") from error
        if len(data) > MAX_SMALL_BYTES:
            raise StoreError(f"{self.root / path}: more than {MAX_SMALL_BYTES} bytes")
        return data

    def create(self, path: str, data: bytes) -> bool:
        """See `Files`: written aside, synced, then linked to its name, which fails if the name is taken."""
        target = self.root / path
        with _translated(f"cannot write {target}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.parent / f".{uuid.uuid4().hex}"
            try:
                with aside.open("xb") as file:
                    file.write(data)
                    _sync(file)
                os.link(aside, target)
            except FileExistsError:
                return False
            finally:
                aside.unlink(missing_ok=True)
            sync_folder(target.parent)
        return True

    def remove(self, path: str) -> None:
        """See `Files`."""
        target = f"{self.root}/{path}"
        with _translated(f"cannot remove {target}"):
            if os.path.isdir(target):  # noqa: PTH112 (thousands in a row)
                _rename_into(target, f"{self.root}/{_TRASH}")
            else:
                Path(target).unlink(missing_ok=True)

    def stage(self) -> LocalStaging:
        """See `Files`."""
        with _translated(f"cannot write to {self.root}"):
            return LocalStaging(self.root)

    def fetch(self, path: str, target: Path, on_bytes: OnBytes | None) -> FileEntry:
        """See `Files`."""
        return copy_hashed(self.root / path, path, target, on_bytes)

    def local(self, path: str) -> Path | None:
        """See `Files`."""
        return self.root / path

    def sweep(self, named: Callable[[], set[str]]) -> list[str]:
        """See `Files`: staging areas whose writer is gone, and the trash. What is named is never here."""
        gone: list[str] = []
        for name in _entries(self.root / _STAGING):
            lock = self.root / _STAGING / name
            if name.endswith(".lock") and _remove_if_dead(lock):
                gone.append(lock.stem)
        for name in _entries(self.root / _TRASH):
            _remove_tree(f"{self.root}/{_TRASH}/{name}")
        return gone


class LocalStaging:
    """Implements `Staging`; its lock lives as long as the writing process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        staging = root / _STAGING
        staging.mkdir(parents=True, exist_ok=True)
        self._folder, self._lock = _locked_area(staging)
        self._folders: set[Path] = {self._folder}
        self._guard = threading.Lock()

    def put(self, source: Source, reading: Reading) -> None:
        """See `Staging`. Where the filesystem can share blocks the bytes are read, not written."""
        target = self._folder / source.path
        self._make_folder(target.parent)
        with _translated(f"cannot write {source.path}"), target.open("xb", buffering=0) as file:
            if _reflink(source.whole_file(), file):
                for _ in reading:
                    pass
            else:
                for chunk in reading:
                    _write_all(file.write, chunk)
            os.fsync(file.fileno())

    def location(self, folder: str) -> str:
        """See `Staging`: the data lies beside its manifest."""
        return folder

    def commit(self, folder: str, manifest: bytes) -> bool:
        """See `Staging`."""
        target = self._root / folder
        with _translated(f"cannot publish {folder}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            with (self._folder / MANIFEST_FILE).open("wb") as file:
                file.write(manifest)
                _sync(file)
            for made in sorted(self._folders, reverse=True):
                sync_folder(made)
            try:
                self._folder.rename(target)
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                    return False
                raise
            sync_folder(target.parent)
        self._release()
        return True

    def discard(self) -> None:
        """See `Staging`."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._release()

    def _make_folder(self, folder: Path) -> None:
        with self._guard, _translated(f"cannot make {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            while folder not in self._folders:
                self._folders.add(folder)
                folder = folder.parent

    def _release(self) -> None:
        if not self._lock.closed:
            self._folder.with_suffix(".lock").unlink(missing_ok=True)
            self._lock.close()


def _entries(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _rename_into(target: str, trash: str) -> None:
    """One rename, so that nobody sees half of it. Not there: somebody else was quicker."""
    os.makedirs(trash, exist_ok=True)  # noqa: PTH103 (thousands in a row)
    with suppress(FileNotFoundError):
        os.rename(target, f"{trash}/{uuid.uuid4().hex}")  # noqa: PTH104


def _remove_tree(folder: str) -> None:
    """`shutil.rmtree` in a third of the time. What cannot be removed stays for the next sweep."""
    with suppress(OSError):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _remove_tree(entry.path)
                else:
                    os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(folder)  # noqa: PTH106


def copy_hashed(source: Path, path: str, target: Path, on_bytes: OnBytes | None) -> FileEntry:
    """Copy a file durably and return its size and sha256; raises `NotFoundError`, `StoreError`."""
    sha, size = hashlib.sha256(), 0
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with _translated(f"cannot copy {path}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            reader = source.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: not in the store") from error
        with reader, target.open("wb", buffering=0) as writer:
            shared = _reflink(source, writer)
            while count := reader.readinto(buffer):
                chunk = buffer[:count]
                if not shared:
                    _write_all(writer.write, chunk)
                sha.update(chunk)
                size += count
                if on_bytes is not None:
                    on_bytes(count)
            os.fsync(writer.fileno())
    return FileEntry(path, size, sha.hexdigest())


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked_area(staging: Path) -> tuple[Path, IO[bytes]]:
    while True:
        name = staging / uuid.uuid4().hex
        lock = name.with_suffix(".lock").open("xb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name.with_suffix(".lock").exists():  # a sweeper may have taken it before it was locked
            name.mkdir()
            return name, lock
        lock.close()


def _remove_if_dead(lock: Path) -> bool:
    try:
        file = lock.open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        lock.unlink(missing_ok=True)
    return True


def _reflink(source: Path | None, target: IO[bytes]) -> bool:
    if source is None:
        return False
    try:
        with source.open("rb") as file:
            fcntl.ioctl(target.fileno(), _FICLONE, file.fileno())
    except FileNotFoundError as error:
        raise SourceChangedError(f"{source} went away while it was published") from error
    except OSError:
        return False
    return True


def _write_all(write: Callable[[memoryview], int | None], chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[write(chunk) or 0 :]


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
