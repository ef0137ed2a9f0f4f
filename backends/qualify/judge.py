"""From what the oracle heard to a verdict. Pure.

Right means: after each reload the engine answers as one that was started on those weights; bit for bit, or,
where two cold starts differ themselves, by no more than they do. A test that could not have shown a fault
(weights that hardly change an answer) is no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from backends.qualify.compare import Difference

FLOOR_FACTOR = 2.0
"""One pair of cold starts is a small sample of how far they lie apart."""
MOVED_MEAN = 0.2
"""Least mean |Δlogp| between the two weights, in nats: far above any noise between cold starts (0.01).

Greedy texts need not differ: a tiny tied model repeats its prompt's last token with any weights.
"""
MOVED_FACTOR = 10.0
"""And so many times that noise, where it was measured."""
BATCH_SHARE = 0.1
"""A batch's numbers depend on which requests met, so they are never equal; a part that stayed old moves
them by a good part of what the other weights do."""


class Verdict(StrEnum):
    QUALIFIED = "qualified"
    """In place may be used."""
    WRONG = "wrong"
    """In place gives other answers than a restart: restart."""
    INCONCLUSIVE = "inconclusive"
    """The test could not tell: restart."""


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One comparison of a warm engine with a cold one."""

    name: str
    difference: Difference
    passed: bool


def passes(difference: Difference, floor: Difference | None) -> bool:
    """Equal, or within the noise floor. Without a floor (not measured) only equal will do."""
    if not difference.finite:
        return False
    if difference.equal or floor is None or floor.equal:
        return difference.equal
    return difference.max <= FLOOR_FACTOR * floor.max and difference.mean <= FLOOR_FACTOR * floor.mean


def checked(differences: Sequence[tuple[str, Difference]], floor: Difference | None) -> tuple[Check, ...]:
    """Each comparison with its outcome."""
    return tuple(Check(name, difference, passes(difference, floor)) for name, difference in differences)


def checked_batches(differences: Sequence[tuple[str, Difference]], moved: Difference) -> tuple[Check, ...]:
    """Each comparison of batches, against how far the two weights lie apart."""
    return tuple(
        Check(name, found, found.equal or (found.finite and found.mean <= BATCH_SHARE * moved.mean))
        for name, found in differences
    )


def judge(checks: Sequence[Check], moved: Difference, floor: Difference | None) -> tuple[Verdict, str]:
    """The verdict and the reason for it; `moved` is between cold starts on the two weights."""
    failed = [check for check in checks if not check.passed]
    if not moved.finite or not all(check.difference.finite for check in checks):
        return Verdict.INCONCLUSIVE, "some answers hold no number where a log-probability should be"
    if failed:
        worst = max(failed, key=lambda check: check.difference.max)
        others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        return Verdict.WRONG, (
            f"{worst.name}{others}: differs from a cold start by up to "
            f"{worst.difference.max:.3g} in log-probability ({_floor_words(floor)})"
        )
    least = max(MOVED_MEAN, MOVED_FACTOR * floor.mean if floor is not None else 0.0)
    if moved.mean < least:
        return Verdict.INCONCLUSIVE, (
            f"the other weights move log-probabilities by {moved.mean:.3g} on average, {least:.3g} would be "
            "needed: a fault would not have shown"
        )
    exact = floor is None or floor.equal
    how = "bit for bit" if exact else f"within the noise of cold starts ({_floor_words(floor)})"
    return Verdict.QUALIFIED, f"equal to cold starts {how}"


def _floor_words(floor: Difference | None) -> str:
    if floor is None:
        return "cold starts were not compared"
    return "two cold starts are equal" if floor.equal else f"two cold starts: up to {floor.max:.3g}"
