"""What is counted by version: exact over workers, bounded in number, and right when it is compared."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.evidence import EvidenceReader, quantile
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.observe.reader import CellsReader
from gateway.observe.versions import KEPT, VersionBook
from tests.gateway.observe.conftest import Claim
from tests.gateway.observe.ended import ended


def counted(reader: CellsReader) -> list[str]:
    return sorted(version for _, version in reader.read().series.get(table.VERSION_REQUESTS.name, {}))


def answer(book: VersionBook, version: str, duration: float = 0.2, tokens: int = 10) -> None:
    record = ended(Outcome.OK, 1000.0, duration, ttft=duration / 2, prompt=5, completion=tokens)
    book.of(version).book([record])


async def test_the_counts_of_all_workers_are_the_evidence(folder: Path, claim: Claim) -> None:
    books = [VersionBook(claim(slot), "small") for slot in range(2)]
    for book in books:
        for _ in range(10):
            answer(book, "v8")
        book.of("v8").book([ended(Outcome.BACKEND_ERROR, 1000.0, 0.2)])
        book.of("v8").faults.add()
        answer(book, "v7", duration=0.1)
    evidence = EvidenceReader(folder)
    found = await evidence.read("small")
    evidence.close()
    assert sorted(found) == ["v7", "v8"]
    seen = found["v8"]
    assert (seen.requests, seen.errors, seen.faults, seen.mean_tokens) == (20, 2, 2, 10)
    assert seen.error_ratio == 2 / 22
    assert 0.17 < seen.latency(0.99) < 0.24
    assert 0.07 < seen.ttft(0.5) < 0.12
    assert found["v7"].latency(0.99) < seen.latency(0.99)


async def test_a_window_holds_what_came_after_its_beginning(folder: Path, claim: Claim) -> None:
    book = VersionBook(claim(0), "small")
    evidence = EvidenceReader(folder)
    for _ in range(100):
        answer(book, "v7", duration=5.0)
    before = (await evidence.read("small"))["v7"]
    for _ in range(3):
        answer(book, "v7", duration=0.2)
    seen = (await evidence.read("small"))["v7"].since(before)
    evidence.close()
    assert seen.requests == 3
    assert seen.latency(0.99) < 0.25
    assert seen.since(None) is seen


async def test_a_version_whose_series_were_begun_anew_counts_whole(folder: Path, claim: Claim) -> None:
    book = VersionBook(claim(0), "small")
    evidence = EvidenceReader(folder)
    answer(book, "v7")
    earlier = (await evidence.read("small"))["v7"]
    answer(book, "v8")
    fresh = (await evidence.read("small"))["v8"]
    for _ in range(2):
        answer(book, "v7")
    later = (await evidence.read("small"))["v7"]
    evidence.close()
    assert fresh.since(later) is fresh
    assert later.since(earlier).requests == 2


def test_a_version_that_answered_nothing_has_no_latency() -> None:
    assert math.isnan(quantile([0, 0, 0], [1.0, 2.0], 0.99))
    assert quantile([0, 0, 5], [1.0, 2.0], 0.5) == 2.0
    assert quantile([0, 4, 0], [1.0, 2.0], 0.5) == 1.5


def test_many_versions_that_come_and_go_leave_a_bounded_number(cells: Cells, reader: CellsReader) -> None:
    book = VersionBook(cells, "small")
    for number in range(50):
        book.serve([f"v{number}"])
        answer(book, f"v{number}")
    assert counted(reader) == sorted(f"v{number}" for number in range(50 - KEPT, 50))


def test_what_is_served_is_not_pushed_out_by_what_was(cells: Cells, reader: CellsReader) -> None:
    book = VersionBook(cells, "small")
    book.serve(["stable"])
    answer(book, "stable")
    for number in range(20):
        book.serve(["stable", f"v{number}"])
    answer(book, "stable")
    assert "stable" in counted(reader)
    assert book.of("stable") is book.of("stable")
    assert reader.read().series[table.VERSION_REQUESTS.name]["small", "stable"][0] == 2


def test_more_versions_than_are_counted_apart_are_others(cells: Cells, reader: CellsReader) -> None:
    book = VersionBook(cells, "small")
    book.serve([f"v{number:02}" for number in range(KEPT + 3)])
    for number in range(KEPT + 3):
        answer(book, f"v{number:02}")
    assert counted(reader) == ["other", *(f"v{number:02}" for number in range(KEPT))]
    assert reader.read().series[table.VERSION_REQUESTS.name]["small", "other"][0] == 3


def test_a_label_that_nobody_serves_makes_no_series_beyond_the_bound(
    cells: Cells, reader: CellsReader
) -> None:
    book = VersionBook(cells, "small")
    for number in range(100):
        answer(book, f"odd-{number}")
    assert len(counted(reader)) == KEPT + 1


@pytest.mark.fault("H3")
def test_the_versions_of_a_model_go_with_it(metrics: Metrics, reader: CellsReader) -> None:
    answer(metrics.model("small").versions, "v7")
    answer(metrics.model("large").versions, "v7")
    metrics.set_models(["large"])
    assert list(reader.read().series[table.VERSION_REQUESTS.name]) == [("large", "v7")]


def test_a_worker_that_died_leaves_no_version_behind(claim: Claim, reader: CellsReader) -> None:
    first = claim(0)
    answer(VersionBook(first, "small"), "v7")
    first.release()
    second = VersionBook(claim(0), "small")
    assert counted(reader) == []
    answer(second, "v7")
    assert reader.read().series[table.VERSION_REQUESTS.name]["small", "v7"][0] == 2
