"""Counting by version of the weights, for metrics and for a rollout's evidence.

One `VersionBook` for each model and worker. What members serve is counted apart, and what they served last,
`KEPT` versions in all; whatever comes beyond is counted as `other`, and the series of a version that makes
room are removed. Latency and length are those of answers that were computed to the end: kept ones would
flatter, broken ones are errors.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Collection, Iterable, Sequence

from gateway.observe import table
from gateway.observe.booking import Ended, observe
from gateway.observe.cells import Cells
from gateway.observe.handles import Choice, Counter, Histogram
from gateway.observe.labels import OTHER_VERSION
from gateway.observe.outcome import Outcome
from gateway.observe.table import ANSWER_BUCKETS as ANSWER_EDGES
from gateway.observe.table import VERSION_BUCKETS as VERSION_EDGES

_OK = Outcome.OK

KEPT = 8
"""Versions of a model that are counted apart."""


class VersionSeries:
    """The series of one version of one model in this worker."""

    __slots__ = (
        "_answers",
        "_duration",
        "_handles",
        "_outcomes",
        "_prompt",
        "_ttft",
        "_values",
        "faults",
    )

    def __init__(self, cells: Cells, model: str, version: str) -> None:
        labels = (model, version)
        requests = Choice(cells, table.VERSION_REQUESTS, labels)
        duration, ttft, answers = (
            Histogram(cells, family, labels)
            for family in (table.VERSION_DURATION, table.VERSION_TTFT, table.VERSION_LENGTH)
        )
        prompt = Counter(cells, table.VERSION_PROMPT, labels)
        self.faults = Counter(cells, table.VERSION_FAULTS, labels)
        self._handles = (requests, duration, ttft, answers, prompt, self.faults)
        self._values = cells.values
        self._outcomes = {outcome: requests.place(outcome) for outcome in Outcome}
        self._duration, self._ttft, self._answers = duration.index, ttft.index, answers.index
        self._prompt = prompt.index

    def book(self, records: Sequence[Ended]) -> None:
        """Count requests that this version was to answer and that have ended.

        Latency, length and prompts: of those that were computed, whole and in order.
        """
        values = self._values
        for outcome, count in Counts(record.outcome for record in records).items():
            values[self._outcomes[outcome]] += count
        whole = [record for record in records if record.outcome is _OK and record.computed]
        observe(values, self._duration, VERSION_EDGES, [record.ended - record.started for record in whole])
        observe(values, self._ttft, VERSION_EDGES, [record.first - record.started for record in whole])
        lengths = [float(record.completion_tokens) for record in whole if record.completion_tokens]
        observe(values, self._answers, ANSWER_EDGES, lengths)
        values[self._prompt] += sum(record.prompt_tokens for record in whole)

    def close(self, cells: Cells) -> None:
        for handle in self._handles:
            handle.close(cells)


class VersionBook:
    """The versions of one model that are counted apart."""

    def __init__(self, cells: Cells, model: str) -> None:
        self._cells = cells
        self._model = model
        self._series: dict[str, VersionSeries] = {}
        """The one that began to be served last comes last."""
        self._served: frozenset[str] = frozenset()
        self._other: VersionSeries | None = None

    def __repr__(self) -> str:
        return f"<VersionBook {self._model} {list(self._series)}>"

    def of(self, version: str) -> VersionSeries:
        """The series that this version is counted in."""
        return self._series.get(version) or self._open(version)

    def serve(self, versions: Collection[str]) -> None:
        """Members serve these now: they are counted apart rather than what is served no more."""
        fresh = [version for version in versions if version not in self._served]
        self._served = frozenset(versions)
        for version in fresh:
            known = self._series.pop(version, None)
            if known is not None:
                self._series[version] = known
            else:
                self._open(version)

    def _open(self, version: str) -> VersionSeries:
        if len(self._series) >= KEPT:
            leaving = leaves(self._series, self._served)
            if leaving is None or version not in self._served:
                if self._other is None:
                    self._other = VersionSeries(self._cells, self._model, OTHER_VERSION)
                return self._other
            self._series.pop(leaving).close(self._cells)
        opened = self._series[version] = VersionSeries(self._cells, self._model, version)
        return opened

    def close(self) -> None:
        """The model is no longer served: its series go."""
        for series in (*self._series.values(), *((self._other,) if self._other is not None else ())):
            series.close(self._cells)
        self._series.clear()
        self._other = None


def leaves(known: Iterable[str], served: Collection[str]) -> str | None:
    """Which version makes room: of those that nobody serves, the one that began to be served first."""
    return next((version for version in known if version not in served), None)
