"""Whether a canary does as well as the stable version: counts of both, and the rules over them. Pure.

Counts are of the time since the canary has its share, all workers of one machine together. Nothing is
concluded from fewer than `min_requests` answers of the candidate; latencies and lengths are compared only
where the stable version has as many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import accumulate
from typing import Any

from gateway.observe.table import DURATION_BUCKETS, TTFT_BUCKETS
from gateway.settings.rollout import Canary

QUANTILE = 0.99
REPORT_KEYS = ("passed", "diagnosis", "numbers", "noise", "breaches", "moved", "prefix", "engine")
"""What a journal keeps of a parity report: not its points."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What one version has answered. Histograms hold counts by bucket, the last one for all above."""

    requests: float = 0.0
    errors: float = 0.0
    """Of these, ended by a fault of the engine's."""
    latency: Sequence[float] = field(default_factory=lambda: (0.0,) * (len(DURATION_BUCKETS) + 1))
    ttft: Sequence[float] = field(default_factory=lambda: (0.0,) * (len(TTFT_BUCKETS) + 1))
    tokens: float = 0.0
    """Generated tokens of all answers."""

    def since(self, before: Counts) -> Counts:
        """What was added after `before`."""
        return Counts(
            self.requests - before.requests,
            self.errors - before.errors,
            tuple(a - b for a, b in zip(self.latency, before.latency, strict=True)),
            tuple(a - b for a, b in zip(self.ttft, before.ttft, strict=True)),
            self.tokens - before.tokens,
        )

    @property
    def error_ratio(self) -> float:
        return self.errors / self.requests if self.requests else 0.0

    @property
    def length(self) -> float:
        """Mean tokens of an answer that is none of an error."""
        answered = self.requests - self.errors
        return self.tokens / answered if answered > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Both versions over the same time."""

    stable: Counts
    candidate: Counts


class Conclusion(Enum):
    WAIT = auto()
    PROMOTE = auto()
    TAKE_BACK = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    conclusion: Conclusion
    reason: str
    numbers: Mapping[str, object]


def judge(evidence: Evidence, rules: Canary, elapsed_s: float) -> Judgement:
    """Conclude from what was seen in `elapsed_s` seconds."""
    candidate, stable = evidence.candidate, evidence.stable
    numbers = {"stable": summary(stable), "candidate": summary(candidate), "seconds": round(elapsed_s, 1)}
    if candidate.requests < rules.min_requests:
        if elapsed_s >= rules.max_s:
            reason = f"only {candidate.requests:g} answers within {rules.max_s:g} s (`rollout.canary.max_s`)"
            return Judgement(Conclusion.TAKE_BACK, reason, numbers)
        reason = f"{candidate.requests:g} of {rules.min_requests} answers of the candidate"
        return Judgement(Conclusion.WAIT, reason, numbers)
    found = _worse(candidate, stable, rules)
    if found:
        return Judgement(Conclusion.TAKE_BACK, "; ".join(found), numbers)
    if elapsed_s < rules.min_s:
        reason = f"it does well; {rules.min_s - elapsed_s:.0f} s more are waited for"
        return Judgement(Conclusion.WAIT, reason, numbers)
    return Judgement(Conclusion.PROMOTE, f"as good over {candidate.requests:g} answers", numbers)


def _worse(candidate: Counts, stable: Counts, rules: Canary) -> list[str]:
    found: list[str] = []
    if candidate.error_ratio - stable.error_ratio > rules.max_error_ratio_increase:
        found.append(f"errors {candidate.error_ratio:.1%}, stable {stable.error_ratio:.1%}")
    if stable.requests < rules.min_requests:
        return found
    for name, edges, of_candidate, of_stable in (
        ("latency", DURATION_BUCKETS, candidate.latency, stable.latency),
        ("TTFT", TTFT_BUCKETS, candidate.ttft, stable.ttft),
    ):
        new, old = quantile(of_candidate, edges), quantile(of_stable, edges)
        if old > 0 and new > old * rules.max_latency_ratio:
            found.append(f"P99 {name} {new:.3g} s, stable {old:.3g} s")
    new, old = candidate.length, stable.length
    if old > 0 and not old / rules.max_length_ratio <= new <= old * rules.max_length_ratio:
        found.append(f"answers of {new:.3g} tokens, stable {old:.3g}")
    return found


def quantile(counts: Sequence[float], edges: Sequence[float], share: float = QUANTILE) -> float:
    """The value below which `share` of the counted lies, linear within a bucket; 0 if nothing was counted.

    Above the last edge it is the last edge.
    """
    total = sum(counts)
    if not total:
        return 0.0
    sums = list(accumulate(counts))
    place = bisect_left(sums, share * total)
    if place >= len(edges):
        return edges[-1]
    low = edges[place - 1] if place else 0.0
    before = sums[place - 1] if place else 0.0
    return low + (edges[place] - low) * (share * total - before) / counts[place]


def summary(counts: Counts) -> dict[str, object]:
    """For people and for the journal."""
    return {
        "requests": counts.requests,
        "errors": counts.errors,
        "latency_p99_s": round(quantile(counts.latency, DURATION_BUCKETS), 4),
        "ttft_p99_s": round(quantile(counts.ttft, TTFT_BUCKETS), 4),
        "tokens": round(counts.length, 2),
    }


def parity_summary(report: Mapping[str, Any] | None) -> dict[str, object]:
    """What is kept of an engine's parity report; empty where nothing was probed."""
    return {key: report[key] for key in REPORT_KEYS if key in report} if report else {}
