"""Which versions may go: a pure plan.

Kept are those that are aliased, pinned or being copied, the newest few, and whatever a kept version
rests on (an adapter's base). Everything else goes, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Plan(msgspec.Struct, frozen=True):
    """What goes, oldest first, and why the others stay."""

    remove: tuple[int, ...]
    keep: dict[int, str]


def plan(
    versions: Iterable[int],
    *,
    keep_last: int,
    aliased: Mapping[str, int],
    pinned: Iterable[int],
    copying: Iterable[int],
    bases: Mapping[int, int],
) -> Plan:
    """Decide what to remove.

    Args:
        keep_last: this many of the newest stay, at least 1, so that numbers are never used twice.
        bases: adapter version → the version that it rests on.

    Raises:
        ValueError: `keep_last` is below 1.
    """
    if keep_last < 1:
        raise ValueError("keep_last is at least 1")
    known = sorted(set(versions))
    keep: dict[int, str] = dict.fromkeys(known[-keep_last:], f"one of the newest {keep_last}")
    keep.update(dict.fromkeys(copying, "being copied"))
    keep.update(dict.fromkeys(pinned, "pinned"))
    keep.update({version: f"alias {alias}" for alias, version in aliased.items()})
    present = set(known)
    pending = list(keep)
    while pending:
        version = pending.pop()
        base = bases.get(version) if version in present else None
        if base is not None and base not in keep:
            keep[base] = f"base of version {version}"
            pending.append(base)
    return Plan(
        tuple(version for version in known if version not in keep),
        {version: reason for version, reason in sorted(keep.items()) if version in present},
    )
