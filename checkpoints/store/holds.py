"""What keeps a version from being removed, and what keeps a version that is being removed from being taken.

Pins are for people, leases for readers while they copy; a lease ends by itself. The collector
condemns a version first and looks at aliases, pins and leases after that; whoever takes a hold looks
for a condemnation after taking it. Whatever the order, at least one of the two sees the other, so
nothing is removed under a reader (the reader is told, or the collector leaves it).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from checkpoints.errors import ConflictError
from checkpoints.store.contract import Files

_PINS, _LEASES, _CONDEMNED, _BASES = "pins", "leases", "condemned", "bases"
LEASE_S = 3600.0
"""A reader that died keeps a version for this long at most."""


class _Lease(msgspec.Struct):
    by: str
    until: str


class Holds:
    """Pins, leases and condemnations of one model."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def pin(self, version: int, reason: str) -> None:
        """Keep a version until it is unpinned; raises `ConflictError` if it is being removed."""
        path = f"{_PINS}/{version:010d}.json"
        self._files.create(path, msgspec.json.encode({"reason": reason}))
        self._refuse_condemned(version, path)

    def unpin(self, version: int) -> None:
        """Let it go."""
        self._files.remove(f"{_PINS}/{version:010d}.json")

    def pinned(self) -> set[int]:
        """The pinned versions."""
        return _numbers(self._files.names(_PINS))

    def rest(self, adapter: int, base: int) -> None:
        """Keep `base` for as long as `adapter` is there: said in a file's name, so that a look reads none."""
        self._files.create(f"{_BASES}/{adapter:010d}.{base:010d}.json", b"{}")

    def bases(self) -> dict[int, int]:
        """Adapter version → the version that it rests on."""
        return {int(name[:10]): int(name[11:21]) for name in self._files.names(_BASES) if name[:10].isdigit()}

    def forget_bases(self, adapters: set[int]) -> None:
        """These adapters are gone."""
        for name in self._files.names(_BASES):
            if _numbers([name]) & adapters:
                self._files.remove(f"{_BASES}/{name}")

    @contextmanager
    def lease(self, version: int, by: str, duration_s: float = LEASE_S) -> Iterator[None]:
        """Keep a version while the block runs; raises `ConflictError` if it is being removed."""
        until = datetime.now(UTC) + timedelta(seconds=duration_s)
        path = f"{_LEASES}/{version:010d}.{uuid.uuid4().hex[:12]}.json"
        self._files.create(path, msgspec.json.encode(_Lease(by, until.isoformat())))
        try:
            self._refuse_condemned(version, None)
            yield
        finally:
            self._files.remove(path)

    def leased(self, now: datetime) -> set[int]:
        """Versions that somebody is copying; leases that ran out are removed."""
        alive: set[int] = set()
        for name in self._files.names(_LEASES):
            raw = self._files.read(f"{_LEASES}/{name}")
            if raw is None:
                continue
            if datetime.fromisoformat(msgspec.json.decode(raw, type=_Lease).until) > now:
                alive |= _numbers([name])
            else:
                self._files.remove(f"{_LEASES}/{name}")
        return alive

    def condemn(self, versions: Iterable[int]) -> str:
        """Announce that these versions are about to be removed; returns the announcement's name."""
        name = f"{uuid.uuid4().hex}.json"
        self._files.create(f"{_CONDEMNED}/{name}", msgspec.json.encode(sorted(versions)))
        return name

    def announcements(self) -> dict[str, set[int]]:
        """Removals that began; a collector that died leaves its own to the next one."""
        raws = {name: self._files.read(f"{_CONDEMNED}/{name}") for name in self._files.names(_CONDEMNED)}
        return {
            name: msgspec.json.decode(raw, type=set[int]) for name, raw in raws.items() if raw is not None
        }

    def retract(self, announcement: str) -> None:
        """Take an announcement back, or end it after the removal."""
        self._files.remove(f"{_CONDEMNED}/{announcement}")

    def is_condemned(self, version: int) -> bool:
        """It is being removed."""
        return any(version in versions for versions in self.announcements().values())

    def _refuse_condemned(self, version: int, undo: str | None) -> None:
        if self.is_condemned(version):
            if undo is not None:
                self._files.remove(undo)
            raise ConflictError(f"version {version} is being removed")


def _numbers(names: list[str]) -> set[int]:
    return {int(name[:10]) for name in names if name[:10].isdigit()}
