"""One model's versions and everything said about them: the record of what should be served.

Versions are numbered from 1 and never change; aliases move by compare-and-swap; the journal only
grows. The store is written once, over the few operations of `Files`, and holds no state of its own:
any number of publishers, gateways and agents may use it at once, in any processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from checkpoints.digest import Progress
from checkpoints.errors import ConflictError, IntegrityError, ManifestError, NotFoundError
from checkpoints.manifest import MANIFEST_FILE, TENSORS_FILE, Manifest, TensorEntry, decode, decode_index
from checkpoints.retention import Plan, plan
from checkpoints.rollouts import Rollouts
from checkpoints.store.aliases import CANDIDATE, Alias, Aliases
from checkpoints.store.contract import Files
from checkpoints.store.holds import Holds
from checkpoints.store.journal import Journal
from checkpoints.verify import Served

VERSIONS = "versions"
_COPIES = 4
"""Files copied from the store at a time."""


class Store:
    """One model in one storage; `check` is applied to each manifest read (signatures)."""

    def __init__(self, files: Files, model: str, *, check: Callable[[Manifest], None] | None = None) -> None:
        self.files = files
        self.model = model
        self.aliases = Aliases(files)
        self.journal = Journal(files)
        self.holds = Holds(files)
        self.rollouts = Rollouts(files)
        self._check = check

    def versions(self) -> list[int]:
        """Numbers of all versions, ascending. Whatever is listed is whole."""
        return [int(name) for name in self.files.names(VERSIONS) if len(name) == 10 and name.isdigit()]

    def manifest(self, version: int) -> Manifest:
        """Read and check one manifest.

        Raises:
            NotFoundError: there is no such version.
            ManifestError: it cannot be trusted.
            SignatureError: its publisher is not trusted.
        """
        where = f"{folder_of(version)}/{MANIFEST_FILE}"
        raw = self.files.read(where)
        if raw is None:
            raise NotFoundError(f"{self.model} has no version {version}")
        manifest = decode(raw, where)
        if manifest.version != version or manifest.model != self.model:
            raise ManifestError(f"{where}: is of {manifest.model} version {manifest.version}")
        if self._check is not None:
            self._check(manifest)
        return manifest

    def newest(self) -> Manifest | None:
        """The manifest of the highest version."""
        for version in reversed(self.versions()):
            try:
                return self.manifest(version)
            except NotFoundError:
                continue
        return None

    def resolve(self, name: str) -> int:
        """A version by number (`7`, `v7`), alias or `latest`; raises `NotFoundError`."""
        plain = name.removeprefix("v")
        if plain.isdigit():
            return self.manifest(int(plain)).version
        version = max(self.versions(), default=None) if name == "latest" else self.aliases.read(name).version
        if version is None:
            raise NotFoundError(f"{self.model} has no version called {name!r}")
        return version

    def tensors(self, manifest: Manifest) -> tuple[TensorEntry, ...]:
        """The version's tensor index; raises `IntegrityError` if it is not what the manifest names."""
        return decode_index(self.small_file(manifest, TENSORS_FILE))

    def small_file(self, manifest: Manifest, path: str) -> bytes:
        """A small file of the version, checked; raises `NotFoundError`, `IntegrityError`."""
        entry = manifest.file(path)
        raw = self.files.read(f"{manifest.data}/{path}") if entry is not None else None
        if entry is None or raw is None:
            raise NotFoundError(f"version {manifest.version} has no {path}")
        if hashlib.sha256(raw).hexdigest() != entry.sha256:
            raise IntegrityError(f"version {manifest.version}: {path} was altered in the store")
        return raw

    def served(self, version: int) -> Served:
        """What a new version is compared with when `version` is served."""
        manifest = self.manifest(version)
        return Served(manifest.kind, manifest.digests, self.tensors(manifest), manifest.digest)

    def fetch(
        self, version: int, target: Path, progress: Callable[[int, int], None] | None = None
    ) -> Manifest:
        """Copy a version to a new folder, checking every byte; the manifest is written last.

        The version cannot be removed meanwhile. On any error what was copied stays without a manifest:
        remove the folder or fetch into another.

        Raises:
            NotFoundError, ConflictError: it is not there, or is being removed.
            IntegrityError: bytes differ from the manifest.
            StoreError: the storage or the disk failed.
        """
        manifest = self.manifest(version)
        told = Progress(manifest.size(), progress)
        with self.holds.lease(version, "fetch"), ThreadPoolExecutor(_COPIES, "fetch") as pool:
            found = pool.map(
                lambda entry: self.files.fetch(
                    f"{manifest.data}/{entry.path}", target / entry.path, told.add
                ),
                manifest.files,
            )
            for entry, have in zip(manifest.files, found, strict=True):
                if (have.size, have.sha256) != (entry.size, entry.sha256):
                    raise IntegrityError(f"version {version}: {entry.path} was altered in the store")
        raw = self.files.read(f"{folder_of(version)}/{MANIFEST_FILE}")
        if raw is None:
            raise NotFoundError(f"{self.model} has no version {version} any more")
        (target / MANIFEST_FILE).write_bytes(raw)
        return manifest

    def point(
        self, alias: str, version: int, *, seen: Alias | None = None, by: str, reason: str = ""
    ) -> Alias:
        """Move an alias to an existing version, from the state `seen` (default: its present one).

        Raises:
            NotFoundError: no such version.
            ConflictError: the alias moved meanwhile, or the version is being removed.
        """
        before = seen or self.aliases.read(alias)
        self.manifest(version)
        at = datetime.now(UTC).isoformat()
        moved = self.aliases.move(before, version, by=by, at=at, reason=reason)
        if self.holds.is_condemned(version) or self.files.read(_manifest_of(version)) is None:
            self.aliases.move(moved, before.version, by=by, at=at, reason="the version was being removed")
            raise ConflictError(f"version {version} is being removed")
        self.journal.append(
            f"alias {alias}", version=version, by=by, detail={"from": before.version, "reason": reason}
        )
        return moved

    def advance_candidate(self, version: int, *, by: str) -> None:
        """Point `candidate` at a version unless it points at a newer one already."""
        while True:
            seen = self.aliases.read(CANDIDATE)
            if seen.version is not None and seen.version >= version:
                return
            try:
                self.point(CANDIDATE, version, seen=seen, by=by, reason="published")
            except ConflictError:
                if self.holds.is_condemned(version):
                    raise
            else:
                return

    def plan_removal(self, keep_last: int) -> Plan:
        """What `collect` would remove now."""
        return plan(
            self.versions(),
            keep_last=keep_last,
            aliased={name: alias.version for name, alias in self.aliases.all().items() if alias.version},
            pinned=self.holds.pinned() | self.rollouts.needed(),
            copying=self.holds.leased(datetime.now(UTC)),
            bases=self.holds.bases(),
        )

    def collect(self, keep_last: int, *, by: str = "gc") -> Plan:
        """Remove what nothing needs, and what dead writers left; returns what was removed.

        Safe beside publishers, readers and other collectors; interrupted, it is finished by the next.
        """
        wanted = self.plan_removal(keep_last)
        begun = self.holds.announcements()
        begun[self.holds.condemn(wanted.remove)] = set(wanted.remove)
        again = self.plan_removal(keep_last)
        removed = sorted(set().union(*begun.values()) - set(again.keep))
        for version in removed:
            self._remove(version)
        self.holds.forget_bases(set(removed))
        self.files.sweep(self._locations)
        for announcement in begun:
            self.holds.retract(announcement)
        if removed:
            self.journal.append("removed", by=by, detail={"versions": removed})
        return Plan(tuple(removed), again.keep)

    def sweep_staging(self) -> None:
        """Remove what killed writers left where that is cheap to tell; `collect` does it everywhere."""
        if self.files.local("") is not None:
            self.files.sweep(self._locations)

    def _remove(self, version: int) -> None:
        where = folder_of(version)
        data = where if self.files.local("") is not None else self._data_of(version)
        self.files.remove(where)
        if data != where:
            self.files.remove(data)

    def _data_of(self, version: int) -> str:
        try:
            return self.manifest(version).data
        except (NotFoundError, ManifestError):
            return folder_of(version)

    def _locations(self) -> set[str]:
        return {self._data_of(version) for version in self.versions()}


def folder_of(version: int) -> str:
    """The folder of a version's manifest."""
    return f"{VERSIONS}/{version:010d}"


def _manifest_of(version: int) -> str:
    return f"{folder_of(version)}/{MANIFEST_FILE}"
