"""The next steps of a rollout, from what is observed now. Pure, deterministic, and harmless to repeat.

    verifying -> preparing -> [canary ->] rolling -> promoting -> promoted
        |            |           |           |
        +- refused <-+           +---------- + -> rolling_back -> rolled_back

Nothing is remembered between two plans: whoever leads next goes on from the record and from what members
say of themselves. A newer version supersedes one that no engine serves yet, or that is still a canary; one
that rolls is finished first. A rollout that superseded another is not superseded in its turn before it
serves, so that a fast publisher cannot keep everything from serving. While nothing rolls, members that
serve something else than what should be served are brought to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from checkpoints.rollouts import Quarantined, Rollout, Stage
from gateway.rollout.canary import before_of, canary_size, target_of
from gateway.rollout.evidence import Conclusion, Evidence, judge, parity_summary
from gateway.rollout.places import (
    AWAY_GRACE_S,
    TRIES,
    Place,
    Placed,
    choose,
    names_of,
    order_for,
    place_all,
    preparing_of,
)
from gateway.rollout.steps import Check, Plan, Prepare, Quarantine, Release, Save, Serve
from gateway.rollout.telling import MAX_NAMES, account, listed, tell
from gateway.rollout.view import View, Weights
from gateway.settings.rollout import RolloutMode


def plan(view: View) -> Plan:
    """What to do now, and what is waited for."""
    record = view.record
    if record is not None and record.blamed and record.digest not in view.quarantined:
        entry = Quarantined(record.digest, record.version, record.reason, view.by, view.now)
        return Plan((Quarantine(entry),), f"{record.label} goes into quarantine")
    if record is None or not record.active:
        return _begin(view) or _keep(view)
    if record.paused:
        return Plan((), f"paused by {record.by}; `changeover rollout resume` goes on")
    return _STAGES[record.stage](view, record)


# Between rollouts


def next_id(record: Rollout | None, weights: Weights) -> str:
    """The same for all who would begin this rollout now."""
    return f"r{(record.generation if record else 0) + 1}-{weights.label}"


def begin(view: View, weights: Weights, *, mode: str, forced: bool, reason: str) -> Rollout:
    """A rollout to these weights, as it begins."""
    last = view.record
    return Rollout(
        id=next_id(last, weights),
        model=view.model,
        version=weights.number,
        label=weights.label,
        digest=weights.digest,
        from_version=view.serving.number,
        from_label=view.serving.label,
        mode=mode,
        sticky=view.options.canary.sticky_header,
        forced=forced,
        started=view.now,
        since=view.now,
        by=view.by,
        reason=reason,
        newest=max(weights.number, view.candidate.number if view.candidate is not None else 0),
        supersedes=last.id if last is not None and last.stage is Stage.SUPERSEDED else "",
        generation=last.generation if last is not None else 0,
    )


def _begin(view: View) -> Plan | None:
    newest = view.candidate
    if not view.options.auto or newest is None or newest.number <= view.serving.number:
        return None
    if newest.digest in view.quarantined or not any(seen.agent for seen in view.members):
        return None
    if view.record is not None and newest.number <= view.record.newest:
        return None
    record = begin(view, newest, mode=view.options.mode.value, forced=False, reason="published")
    return Plan((Save(record),), f"{newest.label} was published: its rollout begins")


def _keep(view: View) -> Plan:
    """Nothing rolls: whoever serves something else is brought to what should be served."""
    target = view.serving
    purpose = f"serve-{target.label}-"
    placed = place_all(view.members, target, purpose)
    chosen = choose(placed, names_of(placed, Place.BEHIND), view.options.max_unavailable)
    orders = tuple(order_for(each, target, purpose, view.options, hold=False) for each in chosen)
    return Plan(orders, tell(placed, target, [order.member for order in orders]))


# Stages


def _verifying(view: View, record: Rollout) -> Plan:
    if record.digest in view.quarantined and not record.forced:
        return _refuse(view, record, f"in quarantine: {view.quarantined[record.digest]}")
    checked = view.checked
    if checked is None or checked.version != record.version:
        return Plan((Check(record.version),), f"{record.label} is compared with what is served")
    if checked.refusal is not None:
        return _refuse(view, record, checked.refusal)
    return _to(view, record, Stage.PREPARING, "the static check passed")


def _preparing(view: View, record: Rollout) -> Plan:
    newer = _superseded(view, record)
    if newer is not None:
        return newer
    target = target_of(record)
    placed = place_all(view.members, target, _purpose(record))
    able = [each for each in placed if each.place not in (Place.FIXED, Place.GONE)]
    if not able and not _stalled(view):
        return Plan((), "no member is there that could change its weights")
    if not able:
        return _refuse(view, record, "no member could change its weights", blame=False)
    lacking = {each.name: reason for each in able if (reason := _unprepared(each, target)) is not None}
    failed = {name: reason for name, reason in lacking.items() if reason}
    if len(failed) >= view.options.max_failed_members:
        name, reason = next(iter(failed.items()))
        return _refuse(view, record, f"{name} will not serve it: {reason}")
    waiting = [name for name in lacking if name not in failed]
    if waiting:
        if _stalled(view):
            return _refuse(view, record, f"{listed(waiting)} did not fetch it in time", blame=False)
        fresh = [each.name for each in able if each.name in waiting and not _fetches(each, target)]
        steps = tuple(Prepare(name, record.version) for name in fresh)
        errors = [got.error for each in able if (got := preparing_of(each.seen, target)) and got.error]
        why = f"; again, since {errors[0]}" if errors else ""
        return Plan(steps, f"{listed(waiting)} fetch and verify {record.label}{why}")
    canary = record.mode == RolloutMode.CANARY and not record.forced and len(able) > 1
    stage = Stage.CANARY if canary else Stage.ROLLING
    return _to(view, record, stage, f"{len(able) - len(failed)} members have it ready")


def _canary(view: View, record: Rollout) -> Plan:
    newer = _superseded(view, record)
    if newer is not None:
        return newer
    if record.forced:
        return _to(view, record, Stage.ROLLING, record.reason)
    placed = place_all(view.members, target_of(record), _purpose(record))
    bad = _failure(view, placed)
    if bad is not None:
        return _take_back(view, record, *bad)
    able = [each for each in placed if each.place not in (Place.FIXED, Place.GONE)]
    size = canary_size(view.options.canary.share, max(2, len(able)))
    chosen = _canaries(able, size)
    if any(each.place is not Place.AT for each in chosen) or len(chosen) < size:
        return _send(view, record, placed, [each.name for each in chosen])
    return _weigh(view, record, chosen)


def _weigh(view: View, record: Rollout, chosen: Sequence[Placed]) -> Plan:
    """The canary serves: give it its part, then conclude from what it does with it."""
    rules = view.options.canary
    if record.share == 0.0 and record.shadow == 0.0:
        return _give(view, record, chosen, shadowed=False)
    found = judge(
        view.evidence or Evidence(None, None),
        rules,
        view.now - record.since,
        shadow=record.share == 0.0,
    )
    if found.conclusion is Conclusion.TAKE_BACK:
        return _take_back(view, record, found.reason, found.numbers)
    if found.conclusion is Conclusion.PROMOTE and record.share == 0.0:
        return _give(view, record, chosen, shadowed=True)
    if found.conclusion is Conclusion.PROMOTE:
        return _to(view, record, Stage.ROLLING, found.reason, found.numbers)
    return Plan((), found.reason)


def _give(view: View, record: Rollout, chosen: Sequence[Placed], *, shadowed: bool) -> Plan:
    """First copies of requests, where that is wanted, then requests."""
    rules, names = view.options.canary, listed([each.name for each in chosen])
    if rules.shadow and not shadowed:
        changed = replace(
            record, shadow=rules.shadow, since=view.now, by=view.by, reason="the canary shadows"
        )
        return Plan((Save(changed),), f"copies of {rules.shadow:.0%} of the requests go to {names}")
    changed = replace(
        record, share=rules.share, shadow=0.0, since=view.now, by=view.by, reason="the canary serves"
    )
    return Plan((Save(changed),), f"{rules.share:.0%} of the requests go to {names}")


def _rolling(view: View, record: Rollout) -> Plan:
    placed = place_all(view.members, target_of(record), _purpose(record))
    bad = _failure(view, placed)
    if bad is not None:
        return _take_back(view, record, *bad)
    # While all are held nobody serves: then who is away is not waited for.
    atomic = record.mode == RolloutMode.ATOMIC
    waited = (Place.BEHIND, Place.BUSY) if atomic else (Place.BEHIND, Place.BUSY, Place.AWAY)
    if any(each.place in waited for each in placed):
        return _send(view, record, placed, [each.name for each in placed])
    took = names_of(placed, Place.AT, Place.HELD)
    if not took:
        return _take_back(view, record, "no member took it", {})
    return _to(view, record, Stage.PROMOTING, f"{len(took)} members took it", account(placed))


def _promoting(view: View, record: Rollout) -> Plan:
    target = target_of(record)
    if view.serving.number != target.number:
        return Plan((Serve(target.number, record.id),), f"{record.label} becomes what should be served")
    placed = place_all(view.members, target, _purpose(record))
    held = [each for each in placed if each.place is Place.HELD]
    if held:
        steps = tuple(Release(each.name, each.swap.id) for each in held if each.swap is not None)
        return Plan(steps, f"{listed(names_of(held, Place.HELD))} begin to serve {record.label}")
    return _to(view, record, Stage.PROMOTED, record.reason, dict(record.evidence))


def _rolling_back(view: View, record: Rollout) -> Plan:
    before = before_of(record)
    if view.serving.number == record.version != before.number:
        return Plan((Serve(before.number, f"{record.id}: {record.reason}"),), f"{before.label} serves again")
    purpose = f"{record.id}-back-"
    placed = place_all(view.members, before, purpose)
    stuck = _stalled(view)
    waiting = any(each.place in (Place.BEHIND, Place.BUSY) for each in placed)
    if waiting and not stuck:
        chosen = choose(placed, names_of(placed, Place.BEHIND), view.options.max_unavailable)
        orders = tuple(order_for(each, before, purpose, view.options, hold=False) for each in chosen)
        return Plan(orders, f"going back: {tell(placed, before, [order.member for order in orders])}")
    left = names_of(placed, Place.BEHIND, Place.BUSY, Place.FAILED)
    reason = record.reason + (f"; not back yet: {listed(left)}" if left else "")
    return _to(view, record, Stage.ROLLED_BACK, reason, dict(record.evidence))


_STAGES: Mapping[Stage, Callable[[View, Rollout], Plan]] = {
    Stage.VERIFYING: _verifying,
    Stage.PREPARING: _preparing,
    Stage.CANARY: _canary,
    Stage.ROLLING: _rolling,
    Stage.PROMOTING: _promoting,
    Stage.ROLLING_BACK: _rolling_back,
}


# What stages have in common


def _purpose(record: Rollout) -> str:
    return f"{record.id}-to-"


def _to(
    view: View, record: Rollout, stage: Stage, reason: str, evidence: Mapping[str, object] | None = None
) -> Plan:
    moved = replace(
        record, stage=stage, since=view.now, by=view.by, reason=reason, evidence=dict(evidence or {})
    )
    return Plan((Save(moved),), f"{stage.value}: {reason}")


def _refuse(view: View, record: Rollout, reason: str, *, blame: bool = True) -> Plan:
    """`blame`: the weights are at fault, and not tried again."""
    refused = _to(view, replace(record, blamed=blame), Stage.REFUSED, reason)
    return Plan(refused.steps, f"refused: {reason}")


def _take_back(view: View, record: Rollout, reason: str, evidence: Mapping[str, object]) -> Plan:
    after = _to(view, replace(record, blamed=True), Stage.ROLLING_BACK, reason, evidence)
    return Plan(after.steps, f"taken back: {reason}")


def _superseded(view: View, record: Rollout) -> Plan | None:
    newest = view.candidate
    if newest is None or newest.number <= record.version or record.supersedes or not view.options.auto:
        return None
    if newest.digest in view.quarantined or record.forced:
        return None
    return _to(view, record, Stage.SUPERSEDED, f"{newest.label} is newer")


def _send(view: View, record: Rollout, placed: Sequence[Placed], allowed: Sequence[str]) -> Plan:
    """The next members of `allowed` on their way."""
    target = target_of(record)
    if _stalled(view):
        left = names_of(placed, Place.BEHIND, Place.BUSY, Place.AWAY)
        reason = f"no member came further in {view.stalled_s:.0f} s; it hangs on {listed(left)}"
        return _take_back(view, record, reason, account(placed))
    atomic = record.mode == RolloutMode.ATOMIC
    chosen = choose(placed, allowed, view.options.max_unavailable, all_at_once=atomic)
    purpose = _purpose(record)
    orders = tuple(order_for(each, target, purpose, view.options, hold=atomic) for each in chosen)
    return Plan(orders, tell(placed, target, [order.member for order in orders]))


def _canaries(able: Sequence[Placed], size: int) -> list[Placed]:
    """Who has the version already, then who is on the way, then the first who can go."""
    order = (Place.AT, Place.BUSY, Place.BEHIND)
    ranked = sorted((each for each in able if each.place in order), key=lambda each: order.index(each.place))
    return ranked[:size]


def _unprepared(placed: Placed, target: Weights) -> str | None:
    """None: it has the version, or needs none; empty: it must fetch it; else why it will not serve it."""
    if placed.place in (Place.AT, Place.HELD) or target.digest == "":
        return None
    got = preparing_of(placed.seen, target)
    if got is None:
        return ""
    if got.condemned:
        return got.error or "it gave no reason"
    return None if got.ready else ""


def _fetches(placed: Placed, target: Weights) -> bool:
    """It is at it, or cannot be told."""
    got = preparing_of(placed.seen, target)
    return placed.seen.status is None or (got is not None and got.error is None)


def _failure(view: View, placed: Sequence[Placed]) -> tuple[str, dict[str, object]] | None:
    """Why the version is to be taken back, if it is."""
    failed = [each for each in placed if each.place is Place.FAILED]
    condemned = [each for each in failed if each.condemned]
    if not condemned and len(failed) < view.options.max_failed_members:
        return None
    first = (condemned or failed)[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    report = parity_summary(first.swap.report if first.swap is not None else None)
    evidence: dict[str, object] = {"member": first.name, "failed": names_of(failed, Place.FAILED)[:MAX_NAMES]}
    if report:
        evidence["parity"] = report
    return f"{first.name}: {first.reason}{more}", evidence


def _stalled(view: View) -> bool:
    return view.stalled_s > TRIES * view.options.member_deadline_s + AWAY_GRACE_S
