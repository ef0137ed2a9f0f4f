from __future__ import annotations

import logging
import resource
import signal
from pathlib import Path

import pytest

from gateway.observe import cells as cells_module
from gateway.observe import table
from gateway.observe.cells import MAX_CLOSED, Cells, cells_path, prepare
from gateway.observe.names import names_path
from gateway.observe.reader import CellsReader
from gateway.observe.table import FAMILIES, Family, Kind
from tests.gateway.observe.conftest import Claim


def test_a_worker_goes_on_with_the_counters_it_finds(claim: Claim) -> None:
    first = claim(0)
    first.values[first.open(table.TASK_FAILURES)] += 5
    first.release()
    second = claim(0)
    index = second.open(table.TASK_FAILURES)
    second.values[index] += 1
    assert second.values[index] == 6


def test_a_worker_starts_with_its_gauges_at_zero(claim: Claim) -> None:
    first = claim(0)
    first.values[first.open(table.IN_FLIGHT, ("small",))] = 7
    first.release()
    second = claim(0)
    assert second.values[second.open(table.IN_FLIGHT, ("small",))] == 0


def test_series_of_members_are_not_shown_until_the_new_worker_knows_the_member(
    claim: Claim, reader: CellsReader
) -> None:
    first = claim(0)
    first.values[first.open(table.LOAD_ERRORS, ("small", "a"))] += 3
    first.release()
    second = claim(0)
    assert reader.read().series.get(table.LOAD_ERRORS.name, {}) == {}
    second.open(table.LOAD_ERRORS, ("small", "a"))
    assert list(reader.read().series[table.LOAD_ERRORS.name][("small", "a")]) == [3.0]


def test_a_closed_series_goes_and_comes_back_with_its_count(cells: Cells, reader: CellsReader) -> None:
    index = cells.open(table.LOAD_ERRORS, ("small", "a"))
    cells.values[index] += 2
    cells.close(index)
    assert reader.read().series.get(table.LOAD_ERRORS.name, {}) == {}
    assert cells.open(table.LOAD_ERRORS, ("small", "a")) == index
    assert list(reader.read().series[table.LOAD_ERRORS.name][("small", "a")]) == [2.0]


def test_a_series_opened_twice_stays_until_it_is_closed_twice(cells: Cells) -> None:
    index = cells.open(table.LOAD_ERRORS, ("small", "a"))
    assert cells.open(table.LOAD_ERRORS, ("small", "a")) == index
    cells.close(index)
    assert (table.LOAD_ERRORS.name, ("small", "a")) in cells.series()
    cells.close(index)
    assert (table.LOAD_ERRORS.name, ("small", "a")) not in cells.series()


def test_a_counter_does_not_fall_while_one_worker_still_has_the_member(
    claim: Claim, reader: CellsReader
) -> None:
    one, two = claim(0), claim(1)
    index = one.open(table.LOAD_ERRORS, ("small", "a"))
    one.values[index] += 4
    other = two.open(table.LOAD_ERRORS, ("small", "a"))
    two.values[other] += 1
    one.close(index)
    assert list(reader.read().series[table.LOAD_ERRORS.name][("small", "a")]) == [5.0]
    two.close(other)
    assert reader.read().series.get(table.LOAD_ERRORS.name, {}) == {}


def test_members_that_come_and_go_for_ever_take_bounded_room(cells: Cells, folder: Path) -> None:
    for number in range(5 * MAX_CLOSED):
        cells.close(cells.open(table.ATTEMPTS, ("small", f"10.0.0.{number}:8000")))
    used = cells.values[cells_module.NEXT]
    assert used < (MAX_CLOSED + 2) * (table.ATTEMPTS.width + 1) + cells_module.HEADER
    assert names_path(folder, 0).stat().st_size < 500_000


def test_reused_cells_start_at_zero_under_their_new_name(cells: Cells, reader: CellsReader) -> None:
    for number in range(MAX_CLOSED + 1):
        index = cells.open(table.LOAD_ERRORS, ("small", f"old-{number}"))
        cells.values[index] += 9
        cells.close(index)
    assert cells.open(table.LOAD_ERRORS, ("small", "new")) == cells_module.HEADER + 1
    assert reader.read().series[table.LOAD_ERRORS.name] == {("small", "new"): pytest.approx([0.0])}


def test_when_it_is_full_further_series_share_one_and_the_log_says_so_once(
    cells: Cells, reader: CellsReader, caplog: pytest.LogCaptureFixture
) -> None:
    rooms = cells_module.CAPACITY // (table.DURATION.width + 1)
    with caplog.at_level(logging.ERROR):
        for number in range(rooms):
            cells.values[cells.open(table.DURATION, (f"model-{number}", "predict"))] += 1
    shown = reader.read().series[table.DURATION.name]
    assert ("overflow", "overflow") in shown
    assert sum(counts[0] for counts in shown.values()) == rooms
    assert len([record for record in caplog.records if "No room" in record.message]) == 1
    # There is still a place for the overflow of every other family.
    for family in FAMILIES:
        assert cells.open(family, ("x",) * len(family.open_labels)) < cells_module.CAPACITY


def test_a_name_that_was_cut_off_by_a_kill_is_not_read(claim: Claim, folder: Path) -> None:
    first = claim(0)
    first.values[first.open(table.IN_FLIGHT, ("small",))] = 1
    first.values[first.open(table.TASK_FAILURES)] = 2
    first.release()
    with names_path(folder, 0).open("ab") as names:
        names.write(b'[4000,77,"task_fai')
    second = claim(0)
    assert second.values[second.open(table.TASK_FAILURES)] == 2


def test_a_file_of_another_version_is_not_misread(folder: Path, reader: CellsReader) -> None:
    other = Family("task_failures_total", Kind.COUNTER, "Another layout.", ("x",), ("a", "b"))
    old = Cells(folder, 0, [other], now=1.0)
    old.values[old.open(other)] = 99
    old.release()
    assert reader.read().series == {}
    new = Cells(folder, 0, FAMILIES, now=2.0)
    assert new.values[new.open(table.TASK_FAILURES)] == 0
    new.release()


def test_a_gateway_that_starts_afresh_begins_at_zero(claim: Claim, folder: Path) -> None:
    first = claim(3)
    first.values[first.open(table.TASK_FAILURES)] = 5
    first.release()
    prepare(folder)
    assert list(folder.iterdir()) == []
    assert not cells_path(folder, 3).exists()


def test_labels_that_do_not_fit_the_family_are_refused(cells: Cells) -> None:
    with pytest.raises(ValueError, match="has the labels"):
        cells.open(table.IN_FLIGHT, ("small", "extra"))


def test_a_name_that_cannot_be_written_costs_a_series_and_not_the_gateway(
    cells: Cells, reader: CellsReader, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        cells.values[cells.open(table.IN_FLIGHT, ("unseen",))] = 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "could not be written" in caplog.text
    assert reader.read().series == {}
    cells.open(table.IN_FLIGHT, ("seen",))
    assert sorted(reader.read().series[table.IN_FLIGHT.name]) == [("seen",), ("unseen",)]
