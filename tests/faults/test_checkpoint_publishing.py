"""S5, S6, S10, a full disk: whatever happens to publishers, readers see whole versions, none is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import threading
from pathlib import Path

import pytest

from checkpoints.draft import Request
from checkpoints.errors import FencedError, StoreError
from checkpoints.publish import publish
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from checkpoints.verify import verify_folder
from tests.checkpoints.models import write_model

SPAWN = multiprocessing.get_context("spawn")


def _store(root: Path) -> Store:
    return Store(LocalFiles(root), "toy")


def _publish_slowly(folder: Path, root: Path, step: int, started: object) -> None:
    started.set()  # type: ignore[attr-defined]
    publish(folder, _store(root), Request("run", step, bytes_per_s=100_000))


@pytest.mark.fault("S5")
def test_a_writer_killed_anywhere_leaves_nothing_that_a_reader_sees(tmp_path: Path) -> None:
    folder, root = write_model(tmp_path / "m", shards=3), tmp_path / "store"
    store = _store(root)
    seen: list[str] = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(0.01):
            for version in store.versions():
                verdict = verify_folder(root / f"versions/{version:010d}", manifest=store.manifest(version))
                if verdict.refused:
                    seen.append(verdict.text())

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for number in range(12):
            started = SPAWN.Event()
            writer = SPAWN.Process(target=_publish_slowly, args=(folder, root, 1, started))
            writer.start()
            assert started.wait(30)
            writer.join(random.Random(number).uniform(0, 0.3))
            if writer.is_alive():
                assert writer.pid is not None
                os.kill(writer.pid, signal.SIGKILL)
            writer.join()
    finally:
        stop.set()
        reader.join()
    assert seen == []
    assert store.versions() in ([], [1])
    publish(folder, store, Request("run", 2))
    assert list((root / ".staging").iterdir()) == []


@pytest.mark.fault("S6")
def test_a_version_outlives_the_trainers_folder(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    store = _store(tmp_path / "store")
    made = publish(folder, store, Request("run", 1))
    (folder / "model.safetensors").write_bytes(b"overwritten in place")
    shutil.rmtree(folder)
    store.fetch(1, tmp_path / "out")
    assert verify_folder(tmp_path / "out", manifest=made.manifest).findings == ()


def _publish_some(folder: Path, root: Path, run: str, results: object) -> None:
    for step in range(1, 6):
        try:
            made = publish(folder, _store(root), Request(run, step, take_over=True))
            results.put((run, step, made.manifest.version))  # type: ignore[attr-defined]
        except FencedError as error:
            results.put((run, step, str(error)))  # type: ignore[attr-defined]


@pytest.mark.fault("S10")
def test_two_publishers_never_take_the_same_number_and_lose_none(tmp_path: Path) -> None:
    root = tmp_path / "store"
    results = SPAWN.Queue()
    writers = [
        SPAWN.Process(target=_publish_some, args=(write_model(tmp_path / run, seed=seed), root, run, results))
        for seed, run in enumerate(("a", "b"))
    ]
    for writer in writers:
        writer.start()
    told = [results.get(timeout=60) for _ in range(10)]
    for writer in writers:
        writer.join()
    numbers = [version for _, _, version in told if isinstance(version, int)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    store = _store(root)
    assert store.versions() == sorted(numbers)
    for run, step, version in told:
        if isinstance(version, int):
            assert (store.manifest(version).run, store.manifest(version).step) == (run, step)


@pytest.mark.fault("S10")
def test_of_two_publishers_of_different_runs_the_superseded_one_is_told(tmp_path: Path) -> None:
    store = _store(tmp_path / "store")
    barrier = threading.Barrier(2)
    told: dict[str, str] = {}

    def run(name: str, seed: int) -> None:
        folder = write_model(tmp_path / name, seed=seed)
        publish(folder, store, Request(name, 1))
        barrier.wait(20)
        try:
            publish(write_model(folder, seed=seed + 10), store, Request(name, 2))
        except FencedError as error:
            told[name] = str(error)

    threads = [threading.Thread(target=run, args=(name, seed)) for seed, name in enumerate("ab")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = store.manifest(2).run
    loser = ({"a", "b"} - {winner}).pop()
    assert list(told) == [loser]
    assert f"superseded by run {winner}" in told[loser]
    assert store.versions() == [1, 2, 3]


def _publish_with_little_room(folder: Path, root: Path, results: object) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    try:
        publish(folder, _store(root), Request("run", 1))
        results.put("published")  # type: ignore[attr-defined]
    except StoreError as error:
        results.put(str(error))  # type: ignore[attr-defined]


def test_a_full_disk_publishes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    results = SPAWN.Queue()
    root = tmp_path / "store"
    writer = SPAWN.Process(
        target=_publish_with_little_room, args=(write_model(tmp_path / "m"), root, results)
    )
    writer.start()
    assert "no room left" in results.get(timeout=60)
    writer.join()
    assert _store(root).versions() == []
    assert list((root / ".staging").iterdir()) == []
