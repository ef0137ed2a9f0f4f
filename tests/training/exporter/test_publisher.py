"""The publishing thread: what it does while the store is down, slow, or says no."""

from __future__ import annotations

import threading
from pathlib import Path

from checkpoints.draft import Request
from checkpoints.errors import FencedError, StoreError
from checkpoints.manifest import Digests, FileEntry, Manifest, content_digest
from training.exporter.publisher import Publisher
from training.exporter.settings import ExportSettings
from training.exporter.snapshot import Snapshot

LIMIT_S = 30


class Counts:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def set(self, name: str, value: float) -> None:
        self.values[name] = value

    def add(self, name: str) -> None:
        self.values[name] = self.values.get(name, 0) + 1


class Scripted:
    """A store that plays its answers: an error, or the next version. `gate` holds each call."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.calls: list[int] = []
        self.folders: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def __call__(self, folder: Path, request: Request) -> Manifest:
        self.calls.append(request.step)
        self.folders.append(sorted(path.name for path in folder.iterdir()))
        self.entered.set()
        assert self.gate.wait(LIMIT_S)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        files = (FileEntry("a", 1, "0" * 64),)
        return Manifest(
            schema=1, model="m", version=len(self.calls), run=request.run, step=request.step, parent=None,
            kind="full", created="", digest=content_digest(files), data="d", files=files, digests=Digests(),
            tensor_count=1,
        )  # fmt: skip


def snapshot(step: int) -> Snapshot:
    def write(folder: Path) -> None:
        (folder / "weights").write_text(str(step))

    return Snapshot(step, "full", write)


def publisher(folder: Path, store: Scripted, counts: Counts) -> Publisher:
    settings = ExportSettings(store="s", model="m")
    made = Publisher(settings, "run", folder / "staging", store, counts)
    made.start()
    return made


def test_a_store_that_is_down_is_asked_again(tmp_path: Path) -> None:
    store, counts = Scripted(StoreError("no answer")), Counts()
    running = publisher(tmp_path, store, counts)
    running.put(snapshot(1))
    outcome = running.wait(1, LIMIT_S)
    assert outcome.manifest is not None
    assert store.calls == [1, 1]
    assert counts.values["exporter_failures_total"] == 1
    assert counts.values["exporter_published_total"] == 1
    assert running.close(LIMIT_S)
    assert list((tmp_path / "staging").iterdir()) == []


def test_newer_weights_take_the_place_of_those_that_wait(tmp_path: Path) -> None:
    store, counts = Scripted(), Counts()
    store.gate.clear()
    running = publisher(tmp_path, store, counts)
    running.put(snapshot(1))
    assert store.entered.wait(LIMIT_S)
    for step in (2, 3, 4):
        running.put(snapshot(step))
    assert counts.values["exporter_pending"] == 2
    store.gate.set()
    assert running.close(LIMIT_S)
    assert store.calls == [1, 4]


def test_what_cannot_succeed_is_not_tried_again(tmp_path: Path) -> None:
    store, counts = Scripted(FencedError("another run has taken over")), Counts()
    running = publisher(tmp_path, store, counts)
    running.put(snapshot(1))
    outcome = running.wait(1, LIMIT_S)
    assert outcome.manifest is None
    assert "taken over" in outcome.reason
    running.put(snapshot(2))
    assert running.wait(2, LIMIT_S).manifest is not None
    assert running.close(LIMIT_S)
    assert store.calls == [1, 2]


def test_an_older_attempt_ends_when_something_newer_waits(tmp_path: Path) -> None:
    store, counts = Scripted(StoreError("no answer")), Counts()
    store.gate.clear()
    running = publisher(tmp_path, store, counts)
    running.put(snapshot(1))
    assert store.entered.wait(LIMIT_S)
    running.put(snapshot(2))
    store.gate.set()
    assert running.wait(2, LIMIT_S).manifest is not None
    assert running.close(LIMIT_S)
    assert store.calls == [1, 2]


def test_a_failure_while_writing_leaves_no_half_folder(tmp_path: Path) -> None:
    store, counts = Scripted(), Counts()

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ValueError("odd weights")

    running = publisher(tmp_path, store, counts)
    running.put(Snapshot(1, "full", fail))
    assert "odd weights" in running.wait(1, LIMIT_S).reason
    assert running.close(LIMIT_S)
    assert store.calls == []
    assert list((tmp_path / "staging").iterdir()) == []


def test_the_end_of_a_run_does_not_wait_for_ever(tmp_path: Path) -> None:
    store = Scripted(*[StoreError("no answer")] * 100)
    running = publisher(tmp_path, store, Counts())
    running.put(snapshot(1))
    assert store.entered.wait(LIMIT_S)
    assert not running.close(0.01)
