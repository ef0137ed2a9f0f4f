from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpoints.draft import Request
from checkpoints.errors import ConflictError, NotFoundError
from checkpoints.publish import publish
from checkpoints.retention import plan
from checkpoints.store.aliases import Alias, Aliases
from checkpoints.store.generations import KEPT
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from tests.checkpoints.models import write_adapter, write_model


def _publish(store: Store, tmp_path: Path, count: int) -> None:
    for step in range(1, count + 1):
        publish(write_model(tmp_path / f"m{step}", seed=step), store, Request("run", step))


def test_an_alias_moves_only_from_what_the_mover_saw(store: Store, tmp_path: Path) -> None:
    _publish(store, tmp_path, 2)
    seen = store.aliases.read("serving")
    assert seen == Alias("serving", None, 0)
    store.point("serving", 1, seen=seen, by="a")
    with pytest.raises(ConflictError, match="alias serving moved from None to 1, by a"):
        store.point("serving", 2, seen=seen, by="b")
    assert store.aliases.read("serving").version == 1


def test_of_many_movers_that_saw_the_same_exactly_one_wins(tmp_path: Path) -> None:
    aliases = Aliases(LocalFiles(tmp_path))
    seen = aliases.read("serving")
    barrier = threading.Barrier(16)

    def move(number: int) -> bool:
        barrier.wait(10)
        try:
            aliases.move(seen, number, by=str(number), at="")
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        won = [number for number, done in enumerate(pool.map(move, range(16))) if done]
    assert len(won) == 1
    assert aliases.read("serving").version == won[0]


def test_old_states_of_an_alias_are_pruned(tmp_path: Path) -> None:
    aliases = Aliases(LocalFiles(tmp_path))
    for number in range(1, KEPT + 20):
        aliases.move(aliases.read("serving"), number, by="", at="")
    assert len(list((tmp_path / "aliases" / "serving").iterdir())) == KEPT
    assert aliases.read("serving").version == KEPT + 19


def test_an_alias_to_nowhere_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError, match="toy has no version 3"):
        store.point("serving", 3, by="a")


def test_names_resolve_to_versions(store: Store, tmp_path: Path) -> None:
    _publish(store, tmp_path, 2)
    store.point("serving", 1, by="a")
    assert [store.resolve(name) for name in ("1", "v2", "latest", "serving", "candidate")] == [1, 2, 2, 1, 2]
    for name in ("3", "last_good"):
        with pytest.raises(NotFoundError):
            store.resolve(name)


def test_candidate_never_goes_back(store: Store, tmp_path: Path) -> None:
    _publish(store, tmp_path, 2)
    store.advance_candidate(1, by="late")
    assert store.aliases.read("candidate").version == 2


def test_the_journal_keeps_its_order(store: Store) -> None:
    for number in range(20):
        store.journal.append("event", version=number, detail={"number": number})
    assert [entry.version for entry in store.journal.last(5)] == [15, 16, 17, 18, 19]


def test_retention_keeps_what_is_new_aliased_pinned_or_copied(store: Store, tmp_path: Path) -> None:
    _publish(store, tmp_path, 7)
    store.point("serving", 1, by="a")
    store.holds.pin(2, "for the paper")
    with store.holds.lease(3, "reader"):
        removed = store.collect(keep_last=2)
    assert removed.remove == (4, 5)
    assert removed.keep == {
        1: "alias serving", 2: "pinned", 3: "being copied", 6: "one of the newest 2", 7: "alias candidate",
    }  # fmt: skip
    assert store.versions() == [1, 2, 3, 6, 7]
    assert store.collect(keep_last=2).remove == (3,)


def test_a_lease_that_ran_out_keeps_nothing(store: Store) -> None:
    with store.holds.lease(1, "dead", duration_s=1.0):
        assert store.holds.leased(datetime.now(UTC)) == {1}
        assert store.holds.leased(datetime.now(UTC) + timedelta(seconds=2)) == set()


def test_what_is_being_removed_can_be_neither_aliased_nor_pinned_nor_copied(
    store: Store, tmp_path: Path
) -> None:
    _publish(store, tmp_path, 2)
    announcement = store.holds.condemn([1])
    with pytest.raises(ConflictError, match="being removed"):
        store.point("serving", 1, by="a")
    assert store.aliases.read("serving").version is None
    with pytest.raises(ConflictError, match="being removed"):
        store.holds.pin(1, "")
    with pytest.raises(ConflictError, match="being removed"):
        store.fetch(1, tmp_path / "out")
    store.holds.retract(announcement)
    store.point("serving", 1, by="a")


def test_a_removal_that_was_interrupted_is_finished_by_the_next(store: Store, tmp_path: Path) -> None:
    _publish(store, tmp_path, 3)
    store.holds.condemn([1])
    assert store.collect(keep_last=2).remove == (1,)
    assert store.holds.announcements() == {}


def test_an_adapter_keeps_its_base() -> None:
    made = plan(range(1, 6), keep_last=1, aliased={}, pinned=[], copying=[], bases={5: 3, 3: 1})
    assert made.remove == (2, 4)
    assert made.keep == {1: "base of version 3", 3: "base of version 5", 5: "one of the newest 1"}


def test_at_least_one_version_stays() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        plan([1], keep_last=0, aliased={}, pinned=[], copying=[], bases={})


def test_a_published_adapters_base_stays_as_long_as_the_adapter(store: Store, tmp_path: Path) -> None:
    _publish(store, tmp_path, 2)
    adapter = write_adapter(tmp_path / "adapter")
    publish(adapter, store, Request("run", 3, base=1))
    publish(write_adapter(tmp_path / "adapter2", seed=9), store, Request("run", 4))
    assert store.manifest(3).kind == "adapter"
    store.holds.pin(3, "")
    assert store.collect(keep_last=1).keep[1] == "base of version 3"
    store.holds.unpin(3)
    assert store.collect(keep_last=1).remove == (1, 3)
    assert store.holds.bases() == {}
