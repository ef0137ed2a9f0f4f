"""What is counted about rollouts: swaps once, gauges bounded by versions, nothing left behind."""

from __future__ import annotations

from dataclasses import replace

from backends.contract import BackendStatus, Outcome, Phase, State, SwapStatus, Way
from gateway.observe.cells import Cells
from gateway.observe.metrics import Metrics
from gateway.observe.reader import CellsReader
from gateway.observe.rollouts import KEPT
from gateway.rollout.ledger import Ledger
from gateway.rollout.view import Seen

RUNNING = SwapStatus("r1-to-1", "v1-00000001", Way.IN_PLACE, Phase.LOADING, timings={"draining": 2.0})
REPORT = {"passed": True, "numbers": {"k3": 0.002, "mean": 0.03}}


def _seen(swap: SwapStatus) -> Seen:
    return Seen("a", BackendStatus("a", State.READY, "m", "v1", "", "", 1, 0, None, swap=swap))


def test_a_swap_that_ends_before_this_leaders_eyes_is_counted_once(
    metrics: Metrics, reader: CellsReader
) -> None:
    ledger = Ledger(metrics.rollout_series("small"))
    done = replace(RUNNING, phase=Phase.ENDED, outcome=Outcome.SERVING_NEW, report=REPORT)
    for swap in (RUNNING, done, done):
        ledger.note([_seen(swap)])
    series = reader.read().series
    assert sum(series["swap_seconds"]["small", "in_place"][:-1]) == 1
    assert series["parity_k3"]["small", "v1-00000001"][0] == 0.002
    assert sum(series["swap_failures_total"]["small",]) == 0


def test_a_swap_that_had_ended_before_is_anothers_to_count(metrics: Metrics, reader: CellsReader) -> None:
    ledger = Ledger(metrics.rollout_series("small"))
    failed = replace(RUNNING, phase=Phase.ENDED, outcome=Outcome.SERVING_OLD)
    ledger.note([_seen(failed)])
    assert sum(reader.read().series["swap_failures_total"]["small",]) == 0
    ledger.ordered("a", "r1-to-2")
    ledger.note([_seen(replace(failed, id="r1-to-2"))])
    assert sum(reader.read().series["swap_failures_total"]["small",]) == 1


def test_versions_are_bounded_and_nothing_stays_when_the_model_goes(metrics: Metrics, cells: Cells) -> None:
    before = set(cells.series())
    series = metrics.rollout_series("small")
    for number in range(50):
        series.parity(f"v{number}-00000000", 0.0, 0.0)
    series.members([f"v{number}-00000000" for number in range(50)])
    opened = [key for key in cells.series() if key not in before]
    assert sum(name == "parity_k3" for name, _ in opened) == KEPT
    assert sum(name == "members_by_version" for name, _ in opened) == KEPT
    series.close()
    assert set(cells.series()) == before
