"""What is told about rollouts, as data: for the admin routes and `changeover rollout`.

Only additions are allowed: an older command reads a newer gateway, and the other way round. Made from a
`View` and the plan that follows from it, so any gateway can tell it, whether it leads or not. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from checkpoints.rollouts import Quarantined, Rollout, Stage
from gateway.rollout.canary import before_of, target_of
from gateway.rollout.evidence import parity_summary, summary
from gateway.rollout.places import place_of, preparing_of
from gateway.rollout.plan import plan
from gateway.rollout.view import Seen, View, Weights


class ShownMember(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    place: str
    """With regard to where the rollout goes: a value of `gateway.rollout.places.Place`."""
    state: str = ""
    """Of the engine, as its agent says; empty: nobody answers."""
    phase: str = ""
    """Of its swap, while one runs."""
    way: str = ""
    prepared: str = ""
    """`ready`, a share, or what speaks against the version."""
    reason: str = ""
    out_of_rotation_s: float = 0.0
    parity: dict[str, object] = {}


class ShownRollouts(msgspec.Struct, frozen=True, kw_only=True):
    """One model's rollouts."""

    model: str
    serving: str
    candidate: str = ""
    leads: bool = False
    """The gateway that answers decides."""
    rollout: Rollout | None = None
    """The one that is under way, or the last one."""
    next: str = ""
    """The plan's next step."""
    members: list[ShownMember] = []
    evidence: dict[str, object] = {}
    """Of the canary until now."""
    quarantined: list[Quarantined] = []
    history: list[Rollout] = []


def show(
    view: View, *, leads: bool, quarantined: Sequence[Quarantined], history: Sequence[Rollout]
) -> ShownRollouts:
    """Everything that is known."""
    record = view.record
    evidence: dict[str, object] = {}
    if view.evidence is not None:
        evidence = {
            "stable": summary(view.evidence.stable),
            "candidate": summary(view.evidence.candidate),
        }
    return ShownRollouts(
        model=view.model,
        serving=view.serving.label,
        candidate=view.candidate.label if view.candidate is not None else "",
        leads=leads,
        rollout=record,
        next=plan(view).next,
        members=[_member(seen, view) for seen in view.members],
        evidence=evidence,
        quarantined=list(quarantined),
        history=list(history),
    )


def _member(seen: Seen, view: View) -> ShownMember:
    record = view.record
    target, purpose = view.serving, f"serve-{view.serving.label}-"
    if record is not None and record.active:
        back = record.stage is Stage.ROLLING_BACK
        target = before_of(record) if back else target_of(record)
        purpose = f"{record.id}-{'back' if back else 'to'}-"
    placed = place_of(seen, target, purpose)
    status, swap = seen.status, placed.swap
    return ShownMember(
        name=seen.name,
        version=status.version if status is not None else seen.version,
        place=placed.place.value,
        state=status.state.value if status is not None else "",
        phase=swap.phase.value if swap is not None and swap.outcome is None else "",
        way=swap.way.value if swap is not None else "",
        prepared=_prepared(seen, target),
        reason=placed.reason or (swap.reason if swap is not None else ""),
        out_of_rotation_s=swap.out_of_rotation_s if swap is not None else 0.0,
        parity=parity_summary(swap.report) if swap is not None else {},
    )


def _prepared(seen: Seen, target: Weights) -> str:
    got = preparing_of(seen, target)
    if got is None:
        return ""
    if got.error is not None:
        return got.error
    if got.ready:
        return "ready"
    return f"{got.done_bytes / got.total_bytes:.0%}" if got.total_bytes else "0%"
