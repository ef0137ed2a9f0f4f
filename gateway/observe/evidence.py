"""What all workers of this machine have counted for each version: the evidence of a rollout.

    before = await evidence.read("small")
    ...
    seen = (await evidence.read("small"))["v8-1a2b3c4d"].since(before.get("v8-1a2b3c4d"))
    seen.requests, seen.error_ratio, seen.latency(0.99)

Counters never fall while a version's series stand, so a difference is what happened in between, whoever
counted it. Other machines' gateways are not in it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.observe import table
from gateway.observe.labels import OTHER_VERSION
from gateway.observe.outcome import Outcome
from gateway.observe.reader import CellsReader, Reading

FAILURES = (Outcome.BACKEND_ERROR, Outcome.TIMEOUT, Outcome.TRUNCATED)
"""Ends that speak against the weights, or against what computes with them."""


@dataclass(frozen=True, slots=True)
class VersionEvidence:
    """Counts of one version: since its series began, or of a window (`since`)."""

    outcomes: Mapping[Outcome, float]
    """Requests by how they ended: kept answers included."""
    faults: float
    """Calls that ended by the member's fault; most of them were tried again elsewhere, and did not fail."""
    durations: Sequence[float]
    """Answers by bucket of `table.VERSION_BUCKETS`, then the sum in seconds."""
    ttfts: Sequence[float]
    lengths: Sequence[float]
    """Answers by bucket of `table.ANSWER_BUCKETS`, then the sum in tokens."""

    @property
    def requests(self) -> float:
        """Answers that were computed to the end: what all figures below rest on."""
        return sum(self.durations[:-1])

    @property
    def errors(self) -> float:
        """Requests that failed, or calls that failed and were tried again: the larger count."""
        return max(self.faults, sum(self.outcomes[outcome] for outcome in FAILURES))

    @property
    def error_ratio(self) -> float:
        """Errors among all that was tried; 0 where nothing was."""
        tried = self.requests + self.errors
        return self.errors / tried if tried else 0.0

    def latency(self, share: float) -> float:
        """Seconds that this share of the answers did not exceed; NaN without any."""
        return quantile(self.durations[:-1], table.VERSION_BUCKETS, share)

    def ttft(self, share: float) -> float:
        """The same to the first byte."""
        return quantile(self.ttfts[:-1], table.VERSION_BUCKETS, share)

    @property
    def mean_tokens(self) -> float:
        """Of an answer; NaN where no engine reported any."""
        answers = sum(self.lengths[:-1])
        return self.lengths[-1] / answers if answers else math.nan

    def since(self, earlier: VersionEvidence | None) -> VersionEvidence:
        """What came after `earlier`; None: all of it. Series that were begun anew meanwhile count whole."""
        if earlier is None or any(
            now < then for now, then in zip(self.durations[:-1], earlier.durations[:-1], strict=True)
        ):
            return self
        return VersionEvidence(
            {outcome: count - earlier.outcomes[outcome] for outcome, count in self.outcomes.items()},
            self.faults - earlier.faults,
            _less(self.durations, earlier.durations),
            _less(self.ttfts, earlier.ttfts),
            _less(self.lengths, earlier.lengths),
        )


class EvidenceReader:
    """Reads the counts of one gateway's workers. Reads run one after the other."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the one that `cells.prepare` made."""
        self._reader = CellsReader(folder, table.FAMILIES)
        self._lock = asyncio.Lock()

    async def read(self, model: str) -> Mapping[str, VersionEvidence]:
        """By label, those that are counted apart. Lets the loop run in between; may be cancelled."""
        reading = Reading()
        async with self._lock:
            for _ in self._reader.read_slices(reading):
                await asyncio.sleep(0)
        return evidence_of(reading, model)

    def close(self) -> None:
        self._reader.close()


def evidence_of(reading: Reading, model: str) -> dict[str, VersionEvidence]:
    """The evidence in a reading. Pure."""
    found: dict[str, VersionEvidence] = {}
    for (name, version), outcomes in reading.series.get(table.VERSION_REQUESTS.name, {}).items():
        if name != model or version == OTHER_VERSION:
            continue
        labels = (name, version)
        parts = [
            reading.series.get(family.name, {}).get(labels)
            for family in (
                table.VERSION_FAULTS,
                table.VERSION_DURATION,
                table.VERSION_TTFT,
                table.VERSION_LENGTH,
            )
        ]
        if None in parts:
            continue  # a worker is just opening its series
        faults, durations, ttfts, lengths = (tuple(part or ()) for part in parts)
        counts = dict(zip((Outcome(value) for value in table.VERSION_REQUESTS.values), outcomes, strict=True))
        found[version] = VersionEvidence(counts, faults[0], durations, ttfts, lengths)
    return found


def quantile(counts: Sequence[float], edges: Sequence[float], share: float) -> float:
    """From a histogram, evenly within a bucket, as PromQL's `histogram_quantile`; NaN if it is empty.

    What lies beyond the last edge counts as the last edge.
    """
    total = sum(counts)
    if not total:
        return math.nan
    rank, seen = share * total, 0.0
    for place, count in enumerate(counts):
        if count and seen + count >= rank:
            if place == len(edges):
                break
            low = edges[place - 1] if place else 0.0
            return low + (edges[place] - low) * max(0.0, rank - seen) / count
        seen += count
    return edges[-1]


def _less(now: Sequence[float], then: Sequence[float]) -> tuple[float, ...]:
    return tuple(a - b for a, b in zip(now, then, strict=True))
