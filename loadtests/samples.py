"""What became of each request, and the summary of a run. Pure.

Latency counts from the moment a request was scheduled for, so waiting to be sent is not hidden. Goodput
is what came in time: requests a second that are whole, within the objective, per second of load.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from loadtests.stats import mean, percentile


class Outcome(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    """429 or 503."""
    ERROR = "error"
    """Another status, a broken connection, or a stream that did not end whole."""
    TIMEOUT = "timeout"
    """No whole answer within the driver's own limit."""
    UNSENT = "unsent"
    """The driver had as many requests open as it may."""


class Sample(msgspec.Struct, frozen=True):
    """One request; times in seconds."""

    label: str
    at_s: float
    """When it was due, from the start of the run."""
    latency_s: float
    """From then to the end of the answer."""
    outcome: Outcome
    status: int = 0
    """0: none came."""
    ttft_s: float | None = None
    """Streams: from when it was due to the first token."""
    gaps_s: tuple[float, ...] = ()
    """Streams: between tokens; 0 where several came at once."""
    retry_after: bool = False
    """A refusal said when to come back."""
    late_s: float = 0.0
    """How much later than due the driver sent it: high values are the driver's fault."""


class Slo(msgspec.Struct, frozen=True):
    """What counts as good."""

    latency_s: float = 2.0
    ttft_s: float | None = None
    gap_s: float | None = None
    """Mean time between a stream's tokens."""

    def met(self, sample: Sample) -> bool:
        """Whether this answer was whole and in time."""
        if sample.outcome is not Outcome.OK or sample.latency_s > self.latency_s:
            return False
        if self.ttft_s is not None and sample.ttft_s is not None and sample.ttft_s > self.ttft_s:
            return False
        return not (self.gap_s is not None and sample.gaps_s and mean(sample.gaps_s) > self.gap_s)


class Percentiles(msgspec.Struct, frozen=True):
    """Of one kind of time, in seconds. None where there were no values."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles:
        ordered = sorted(values)
        if not ordered:
            return cls(0, None, None, None, None, None, None)
        p50, p90, p99, p999 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99, 0.999))
        return cls(len(ordered), mean(ordered), p50, p90, p99, p999, ordered[-1])


class Summary(msgspec.Struct, frozen=True):
    """One run in numbers."""

    seconds: float
    offered: float
    """Requests a second that were due."""
    goodput: float
    """Requests a second that met the objective."""
    outcomes: dict[str, int]
    latency: Percentiles
    """Of whole answers."""
    ttft: Percentiles
    gaps: Percentiles
    refusal: Percentiles
    """How long a refusal took."""
    late_p99_s: float
    """The driver's own lateness."""
    refusals_without_retry_after: int
    labels: dict[str, Percentiles]
    """Latency of whole answers by kind of request."""


def summarise(samples: Sequence[Sample], seconds: float, slo: Slo) -> Summary:
    """All samples that were due within `seconds`."""
    ok = [sample for sample in samples if sample.outcome is Outcome.OK]
    refused = [sample for sample in samples if sample.outcome is Outcome.REFUSED]
    return Summary(
        seconds=seconds,
        offered=len(samples) / seconds,
        goodput=sum(map(slo.met, samples)) / seconds,
        outcomes={outcome: sum(s.outcome is outcome for s in samples) for outcome in Outcome},
        latency=Percentiles.of(sample.latency_s for sample in ok),
        ttft=Percentiles.of(sample.ttft_s for sample in ok if sample.ttft_s is not None),
        gaps=Percentiles.of(gap for sample in ok for gap in sample.gaps_s),
        refusal=Percentiles.of(sample.latency_s - sample.late_s for sample in refused),
        late_p99_s=percentile(sorted(sample.late_s for sample in samples), 0.99) if samples else 0.0,
        refusals_without_retry_after=sum(not sample.retry_after for sample in refused),
        labels={
            label: Percentiles.of(sample.latency_s for sample in ok if sample.label == label)
            for label in sorted({sample.label for sample in samples})
        },
    )


def by_second(samples: Iterable[Sample], slo: Slo) -> list[tuple[float, int, int]]:
    """For each second in which requests were due: (second, those that met the objective, those refused)."""
    rows: dict[int, list[int]] = {}
    for sample in samples:
        row = rows.setdefault(int(sample.at_s), [0, 0])
        row[0] += slo.met(sample)
        row[1] += sample.outcome is Outcome.REFUSED
    return [(float(second), good, refused) for second, (good, refused) in sorted(rows.items())]
