"""Counting for rollouts: what is under way, how it ended, how long swaps take, how far engines and trainer
are apart.

One for each model and worker. Gauges say the same in every worker that leads or sees it, and are combined
by their maximum; what is counted is counted by the leader alone. Versions are bounded: the newest `KEPT`
that members serve or served.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.handles import Choice, Gauge, Histogram
from gateway.observe.labels import OTHER_VERSION, RolloutEnd, SwapWay

KEPT: Final = 8


class _ByVersion:
    """One gauge for each version, bounded."""

    def __init__(self, cells: Cells, family: table.Family, model: str) -> None:
        self._cells = cells
        self._family = family
        self._model = model
        self._gauges: dict[str, Gauge] = {}

    def set(self, version: str, value: float) -> None:
        gauge = self._gauges.pop(version, None)
        if gauge is None:
            gauge = Gauge(self._cells, self._family, (self._model, version))
            if len(self._gauges) >= KEPT:
                self._gauges.pop(next(iter(self._gauges))).close(self._cells)
        self._gauges[version] = gauge
        gauge.set(value)

    def keep(self, versions: Iterable[str]) -> None:
        """Those of other versions go."""
        for version in self._gauges.keys() - set(versions):
            self._gauges.pop(version).close(self._cells)

    def close(self) -> None:
        self.keep(())


class RolloutSeries:
    """The series of one model's rollouts in this worker."""

    def __init__(self, cells: Cells, model: str) -> None:
        self._cells = cells
        self._active = Gauge(cells, table.ROLLOUT_ACTIVE, (model,))
        self._ends = Choice(cells, table.ROLLOUT_OUTCOMES, (model,))
        self._failures = Choice(cells, table.SWAP_FAILURES, (model,))
        self._seconds = {way: Histogram(cells, table.SWAP_SECONDS, (model, way)) for way in SwapWay}
        self._members = _ByVersion(cells, table.MEMBERS_BY_VERSION, model)
        self._k3 = _ByVersion(cells, table.PARITY_K3, model)
        self._mean = _ByVersion(cells, table.PARITY_MEAN, model)

    def active(self, is_active: bool) -> None:
        self._active.set(float(is_active))

    def ended(self, end: RolloutEnd) -> None:
        """A rollout has ended."""
        self._ends.add(end)

    def members(self, versions: Iterable[str]) -> None:
        """What each member serves."""
        counts = Tally(versions)
        apart = KEPT if len(counts) <= KEPT else KEPT - 1
        shown = [version for version, _ in counts.most_common(apart)]
        rest = sum(count for version, count in counts.items() if version not in shown)
        self._members.keep([*shown, OTHER_VERSION] if rest else shown)
        for version in shown:
            self._members.set(version, counts[version])
        if rest:
            self._members.set(OTHER_VERSION, rest)

    def swapped(self, way: SwapWay, seconds: float, *, failed: bool) -> None:
        """A swap has ended; `seconds` from its order to its end."""
        if failed:
            self._failures.add(way)
        else:
            self._seconds[way].observe(seconds)

    def parity(self, version: str, k3: float, mean: float) -> None:
        """How far an engine was from the trainer when this version was probed last."""
        self._k3.set(version, k3)
        self._mean.set(version, mean)

    def close(self) -> None:
        """The model is no longer served: its series go."""
        self._active.close(self._cells)
        self._ends.close(self._cells)
        self._failures.close(self._cells)
        for histogram in self._seconds.values():
            histogram.close(self._cells)
        for gauges in (self._members, self._k3, self._mean):
            gauges.close()
