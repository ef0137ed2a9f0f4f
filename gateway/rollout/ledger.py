"""From what a rollout is seen to do to what is counted: each swap and each end once, by the leader.

A swap is counted when it ends in front of this leader's eyes, so that whoever takes over counts none twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backends.contract import Outcome, SwapStatus
from checkpoints.rollouts import Rollout
from gateway.observe.labels import RolloutEnd, SwapWay
from gateway.observe.rollouts import RolloutSeries
from gateway.rollout.view import Seen


class Ledger:
    """One for each model and worker."""

    def __init__(self, series: RolloutSeries) -> None:
        self._series = series
        self._open: set[tuple[str, str]] = set()
        """Member and swap that are not counted yet."""

    def show(self, record: Rollout | None, versions: Sequence[str]) -> None:
        """What the record says, and what each member serves."""
        self._series.active(record is not None and record.active)
        self._series.members(versions)

    def ended(self, record: Rollout) -> None:
        """This leader has written the state."""
        if not record.active:
            self._series.ended(RolloutEnd(record.stage.value))

    def ordered(self, member: str, swap_id: str) -> None:
        """This leader has given the order; its end may be seen before its course."""
        self._open.add((member, swap_id))

    def note(self, members: Iterable[Seen]) -> None:
        """What members say of their swaps."""
        still: set[tuple[str, str]] = set()
        for seen in members:
            swap = seen.status.swap if seen.status is not None else None
            if swap is None:
                still |= {key for key in self._open if key[0] == seen.name}
            elif swap.outcome is None:
                still.add((seen.name, swap.id))
            elif (seen.name, swap.id) in self._open:
                self._count(swap)
        self._open = still

    def close(self) -> None:
        self._series.close()

    def _count(self, swap: SwapStatus) -> None:
        failed = swap.outcome is not Outcome.SERVING_NEW
        self._series.swapped(SwapWay(swap.way.value), sum(swap.timings.values()), failed=failed)
        numbers = (swap.report or {}).get("numbers", {})
        if "k3" in numbers and "mean" in numbers:
            self._series.parity(swap.version, float(numbers["k3"]), float(numbers["mean"]))
