"""What is said of a rollout: sentences for people, figures for the journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.rollout.evidence import parity_summary
from gateway.rollout.places import Place, Placed, is_alone, names_of
from gateway.rollout.view import Weights

MAX_NAMES = 8
"""Members that a sentence names."""


def account(placed: Sequence[Placed]) -> dict[str, object]:
    """What the members' swaps were like: for the journal."""
    swaps = [each.swap for each in placed if each.place in (Place.AT, Place.HELD) and each.swap is not None]
    ways = sorted({swap.way.value for swap in swaps})
    out = sorted(swap.out_of_rotation_s for swap in swaps)
    found: dict[str, object] = {
        "members": len(placed),
        "took": len(swaps),
        "ways": ways,
        "aborted": sum(swap.aborted for swap in swaps),
        "failed": names_of(placed, Place.FAILED)[:MAX_NAMES],
        "not_reached": names_of(placed, Place.GONE)[:MAX_NAMES],
        "without_agent": names_of(placed, Place.FIXED)[:MAX_NAMES],
    }
    if out:
        found |= {"out_of_rotation_p50_s": out[len(out) // 2], "out_of_rotation_max_s": out[-1]}
    reports = [swap.report for swap in swaps if swap.report is not None]
    if reports:
        worst = max(reports, key=lambda report: float(report.get("numbers", {}).get("k3", 0.0)))
        found["parity_worst"] = parity_summary(worst)
    return found


def tell(placed: Sequence[Placed], target: Weights, sent: Sequence[str]) -> str:
    """One sentence for people."""
    counted = [each for each in placed if each.place is not Place.FIXED]
    took = names_of(counted, Place.AT, Place.HELD)
    parts = [f"{len(took)} of {len(counted)} members have {target.label}"]
    for what, names in (
        ("told now", list(sent)),
        ("on the way", names_of(counted, Place.BUSY)),
        ("waiting", [name for name in names_of(counted, Place.BEHIND) if name not in sent]),
        ("not reached", names_of(counted, Place.AWAY, Place.GONE)),
        ("failed", names_of(counted, Place.FAILED)),
        ("without an agent, left as they are", names_of(placed, Place.FIXED)),
    ):
        if names:
            parts.append(f"{what}: {listed(names)}")
    if sent and is_alone(placed):
        parts.append("it is the only member: requests wait meanwhile")
    return "; ".join(parts)


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
