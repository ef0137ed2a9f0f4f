"""What is told of published versions: where they come from, what they were trained to, what became of them.

As data, for `GET /admin/checkpoints`. Only additions are allowed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from checkpoints.manifest import Manifest
from checkpoints.rollouts import Quarantined, Rollout
from checkpoints.store.aliases import Alias


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a version in one rollout."""

    rollout: str
    stage: str
    mode: str
    reason: str
    at: float
    """Unix seconds."""


class ShownCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One published version."""

    version: int
    digest: str
    run: str
    step: int
    kind: str
    created: str
    parent: int | None
    """The version it was made of; None: the base model."""
    metrics: dict[str, float | int | str | bool]
    """As its trainer gave them."""
    probe: bool
    """It carries the trainer's numbers."""
    aliases: list[str]
    quarantined: str | None
    """Why its weights are kept out."""
    verdicts: list[Verdict]
    """Of its rollouts that are still remembered, the newest first."""


def show_checkpoint(
    manifest: Manifest,
    aliases: Mapping[str, Alias],
    quarantined: Mapping[str, Quarantined],
    history: Sequence[Rollout],
) -> ShownCheckpoint:
    """One version with what points at it and what became of it."""
    held = quarantined.get(manifest.digest)
    return ShownCheckpoint(
        version=manifest.version,
        digest=manifest.digest,
        run=manifest.run,
        step=manifest.step,
        kind=manifest.kind,
        created=manifest.created,
        parent=manifest.parent,
        metrics=manifest.metrics,
        probe=manifest.has_probe(),
        aliases=[name for name, at in aliases.items() if at.version == manifest.version],
        quarantined=held.reason if held is not None else None,
        verdicts=[
            Verdict(
                rollout=record.id,
                stage=record.stage.value,
                mode=record.mode,
                reason=record.reason,
                at=record.since,
            )
            for record in history
            if record.version == manifest.version
        ],
    )
