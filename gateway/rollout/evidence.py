"""Whether a canary does as well as the stable version: counts of both, and the rules over them. Pure.

Counts are of the time since the canary has its share, all workers of one machine together
(`gateway.observe.evidence`). Nothing is concluded from fewer than `min_requests` answers of the candidate;
latencies and lengths are compared only where the stable version has as many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from gateway.observe.evidence import VersionEvidence
from gateway.settings.rollout import Canary

QUANTILE = 0.99
REPORT_KEYS = ("passed", "diagnosis", "numbers", "noise", "breaches", "moved", "prefix", "engine")
"""What a journal keeps of a parity report: not its points."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Both versions over the same time; None: nothing was counted."""

    stable: VersionEvidence | None
    candidate: VersionEvidence | None


class Conclusion(Enum):
    WAIT = auto()
    PROMOTE = auto()
    TAKE_BACK = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    conclusion: Conclusion
    reason: str
    numbers: Mapping[str, object]


def judge(evidence: Evidence, rules: Canary, elapsed_s: float, *, shadow: bool = False) -> Judgement:
    """Conclude from what was seen in `elapsed_s` seconds.

    `shadow`: the candidate answered copies, whole and unseen: neither their first bytes nor their tokens say
    anything.
    """
    candidate, stable = evidence.candidate, evidence.stable
    numbers = {"stable": summary(stable), "candidate": summary(candidate), "seconds": round(elapsed_s, 1)}
    tried = _tried(candidate)
    if candidate is None or tried < rules.min_requests:
        if elapsed_s >= rules.max_s:
            reason = f"only {tried:g} answers within {rules.max_s:g} s (`rollout.canary.max_s`)"
            return Judgement(Conclusion.TAKE_BACK, reason, numbers)
        return Judgement(
            Conclusion.WAIT, f"{tried:g} of {rules.min_requests} answers of the candidate", numbers
        )
    found = _worse(candidate, stable, rules, shadow=shadow)
    if found:
        return Judgement(Conclusion.TAKE_BACK, "; ".join(found), numbers)
    if elapsed_s < rules.min_s:
        reason = f"it does well; {rules.min_s - elapsed_s:.0f} s more are waited for"
        return Judgement(Conclusion.WAIT, reason, numbers)
    return Judgement(Conclusion.PROMOTE, f"as good over {tried:g} answers", numbers)


def _tried(counts: VersionEvidence | None) -> float:
    return counts.requests + counts.errors if counts is not None else 0.0


def _worse(
    candidate: VersionEvidence, stable: VersionEvidence | None, rules: Canary, *, shadow: bool
) -> list[str]:
    found: list[str] = []
    usual = stable.error_ratio if stable is not None else 0.0
    if candidate.error_ratio - usual > rules.max_error_ratio_increase:
        found.append(f"errors {candidate.error_ratio:.1%}, stable {usual:.1%}")
    if stable is None or stable.requests < rules.min_requests or candidate.requests < rules.min_requests:
        return found
    compared = [("latency", candidate.latency(QUANTILE), stable.latency(QUANTILE))]
    if not shadow:
        compared.append(("TTFT", candidate.ttft(QUANTILE), stable.ttft(QUANTILE)))
    for name, new, old in compared:
        if new > old * rules.max_latency_ratio:
            found.append(f"P99 {name} {new:.3g} s, stable {old:.3g} s")
    new, old = candidate.mean_tokens, stable.mean_tokens
    if shadow:
        return found
    if new > old * rules.max_length_ratio or new < old / rules.max_length_ratio:
        found.append(f"answers of {new:.3g} tokens, stable {old:.3g}")
    return found


def summary(counts: VersionEvidence | None) -> dict[str, object]:
    """For people and for the journal; None where nothing was counted."""
    if counts is None:
        return {"requests": 0.0}
    return {
        "requests": counts.requests,
        "errors": counts.errors,
        "latency_p99_s": _rounded(counts.latency(QUANTILE)),
        "ttft_p99_s": _rounded(counts.ttft(QUANTILE)),
        "tokens": _rounded(counts.mean_tokens),
    }


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def parity_summary(report: Mapping[str, Any] | None) -> dict[str, object]:
    """What is kept of an engine's parity report; empty where nothing was probed."""
    return {key: report[key] for key in REPORT_KEYS if key in report} if report else {}
