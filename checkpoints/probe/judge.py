"""From a probe and what an engine answered to a report: pure, and the whole of a verdict.

Passed means: every limit is met and no test found a fault. The engine's own noise stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from checkpoints.probe.contract import Probe
from checkpoints.probe.diagnosis import (
    Cause,
    Diagnosis,
    Scale,
    diagnose,
    generated_scale,
    prefix_gaps,
    scored_scale,
)
from checkpoints.probe.parity import (
    Limits,
    Numbers,
    Share,
    breaches,
    limits_for,
    numbers,
    share_of,
    top1_agreement,
)
from checkpoints.probe.replay import Observed


class Prefix(msgspec.Struct, frozen=True):
    """|difference| of generated tokens' log-probabilities: warm against cold, and cold against cold."""

    mean: float
    max: float
    cold_mean: float
    cold_max: float


class Report(msgspec.Struct, frozen=True):
    """The verdict with all its numbers; `points` are (trainer, engine) log-probabilities."""

    passed: bool
    diagnosis: Diagnosis
    numbers: Numbers
    noise: Numbers
    limits: Limits
    breaches: tuple[str, ...]
    moved: bool | None
    """It moved away from the version before; None where the probe cannot tell."""
    prefix: Prefix
    scale: Scale
    default_scale: Scale
    shares: tuple[Share, ...]
    invisible: tuple[str, ...]
    """Tensors whose old values the probe could not tell from the new ones."""
    trainer_dtype: str
    engine_dtype: str
    golden_compared: int
    checksums_compared: int
    points: tuple[tuple[float, float], ...]
    subject: str = ""
    engine: str = ""


def judge(
    probe: Probe,
    seen: Observed,
    *,
    engine_dtype: str = "bfloat16",
    changes: Mapping[str, float] | None = None,
    subject: str = "",
    engine: str = "",
) -> Report:
    """Compare and conclude; `changes` replaces single limits; raises `ManifestError` for an unknown one."""
    limits = limits_for(probe.trainer_dtype, engine_dtype, changes)
    trainer = [text.logprobs for text in probe.texts]
    engine_rows = seen.logprobs()
    found = numbers(trainer, engine_rows, top1_agreement(probe, seen.top1()))
    again = [[place.logprob for place in row] for row in seen.again]
    failed = breaches(found, limits)
    shares = tuple(share_of(probe, engine_rows, other) for other in probe.counterfactuals)
    diagnosis = diagnose(probe, seen, found, limits, failed, shares)
    gaps, floor = prefix_gaps(seen.warm, seen.cold), prefix_gaps(seen.cold_again, seen.cold)
    return Report(
        passed=not failed and diagnosis.cause is Cause.NONE,
        diagnosis=diagnosis,
        numbers=found,
        noise=numbers(again, engine_rows),
        limits=limits,
        breaches=tuple(failed),
        moved=_moved(shares),
        prefix=Prefix(_mean(gaps), max(gaps, default=0.0), _mean(floor), max(floor, default=0.0)),
        scale=scored_scale(probe, seen),
        default_scale=generated_scale(probe, seen.default_next),
        shares=shares,
        invisible=tuple(name for share in shares if not share.visible for name in share.names),
        trainer_dtype=probe.trainer_dtype,
        engine_dtype=engine_dtype,
        golden_compared=len(seen.tokenized),
        checksums_compared=len(seen.weights.equal) + len(seen.weights.different),
        points=tuple(
            pair for a, b in zip(trainer, engine_rows, strict=True) for pair in zip(a, b, strict=True)
        ),
        subject=subject,
        engine=engine,
    )


def _moved(shares: tuple[Share, ...]) -> bool | None:
    before = next((share for share in shares if share.cause == "unchanged"), None)
    if before is None or not before.visible:
        return None
    return not before.stale


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
