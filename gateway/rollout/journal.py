"""How each decision of a rollout stands in the store's journal: what, why, and on what evidence. Pure.

An entry is named by its record's time and generation, so that writing it again adds nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

from checkpoints.rollouts import Rollout, Stage
from checkpoints.store.journal import Entry


def entry_of(record: Rollout) -> tuple[Entry, str]:
    """The entry of one state, and its key."""
    at = datetime.fromtimestamp(record.since, UTC).isoformat(timespec="microseconds")
    detail: dict[str, object] = {
        "rollout": record.id,
        "label": record.label,
        "from": record.from_label,
        "mode": record.mode,
        "reason": record.reason,
    }
    if record.stage is Stage.CANARY and (record.share or record.shadow):
        detail |= {"share": record.share, "shadow": record.shadow}
    if not record.active:
        detail["seconds"] = round(record.since - record.started, 3)
    if record.paused:
        detail["paused"] = True
    if record.evidence:
        detail["evidence"] = record.evidence
    event = f"rollout {record.stage.value.replace('_', ' ')}"
    return Entry(at, event, record.version or None, record.by, detail), f"{record.id}-{record.generation}"
