"""A configuration that changes while the gateway runs: all or nothing, and said once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.settings.diff import Diff
from gateway.settings.load import Loaded, load
from gateway.settings.problems import SettingsError
from gateway.settings.watch import Watcher
from gateway.tasks import TaskOwner

Told = tuple[Loaded, Diff] | SettingsError
LONG_S = 3600.0
SHORT_S = 0.01


class Scene:
    """A watched file, and what the watcher told."""

    def __init__(self, path: Path, owner: TaskOwner) -> None:
        self.path = path
        self.loads = 0
        self.told: asyncio.Queue[Told] = asyncio.Queue()
        self._owner = owner

    def write(self, text: str) -> None:
        """As editors do that care: whole or not at all."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.path)

    def _load(self) -> Loaded:
        self.loads += 1
        return load(self.path, environment={})

    def watch(self, interval_s: float) -> Watcher:
        watcher = Watcher(
            load(self.path, environment={}),
            load=self._load,
            on_change=lambda loaded, change: self.told.put_nowait((loaded, change)),
            on_error=self.told.put_nowait,
            interval_s=interval_s,
        )
        self._owner.start("watch", watcher.run())
        return watcher

    async def next_change(self) -> tuple[Loaded, Diff]:
        told = await self.told.get()
        assert not isinstance(told, SettingsError), told
        return told

    async def next_error(self) -> SettingsError:
        told = await self.told.get()
        assert isinstance(told, SettingsError)
        return told


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with TaskOwner("test") as owner:
        path = tmp_path / "infer.yaml"
        path.write_text("limits: {max_queued: 1}\n")
        yield Scene(path, owner)


async def test_a_change_is_noticed_by_itself(scene: Scene) -> None:
    scene.watch(SHORT_S)
    scene.write("limits: {max_queued: 2}\n")
    loaded, change = await scene.next_change()
    assert loaded.settings.limits.max_queued == 2
    assert [each.key for each in change.changes] == ["limits.max_queued"]


async def test_a_poke_looks_at_once(scene: Scene) -> None:
    watcher = scene.watch(LONG_S)
    scene.write("limits: {max_queued: 2}\n")
    watcher.poke()
    loaded, _ = await scene.next_change()
    assert loaded.settings.limits.max_queued == 2


async def test_a_broken_file_changes_nothing_and_is_told_once(scene: Scene) -> None:
    scene.watch(SHORT_S)
    scene.write("limits: {max_queued: 2, max_queue_s: never}\n")
    error = await scene.next_error()
    assert [problem.key for problem in error.problems] == ["limits.max_queue_s"]
    scene.write("limits: {max_queued: 3}\n")
    _, change = await scene.next_change()
    assert [(each.old, each.new) for each in change.changes] == [(1, 3)]
    assert scene.told.empty()


async def test_a_broken_file_that_is_as_before_again_is_told(scene: Scene) -> None:
    watcher = scene.watch(LONG_S)
    scene.write("limits: [\n")
    watcher.poke()
    await scene.next_error()
    scene.write("limits: {max_queued: 1}\n")
    watcher.poke()
    _, change = await scene.next_change()
    assert not change


async def test_a_file_that_is_gone_is_an_error_and_its_return_is_noticed(scene: Scene) -> None:
    scene.watch(SHORT_S)
    scene.path.unlink()
    error = await scene.next_error()
    assert "cannot be read" in str(error)
    scene.write("limits: {max_queued: 2}\n")
    loaded, _ = await scene.next_change()
    assert loaded.settings.limits.max_queued == 2


async def test_content_that_means_the_same_is_silent(scene: Scene) -> None:
    watcher = scene.watch(LONG_S)
    scene.write("# a comment\nlimits:\n  max_queued: 1\n")
    watcher.poke()
    scene.write("limits: {max_queued: 2}\n")
    watcher.poke()
    _, change = await scene.next_change()
    assert [(each.old, each.new) for each in change.changes] == [(1, 2)]


async def test_a_symlink_swap_as_kubernetes_does_it_is_noticed(scene: Scene, tmp_path: Path) -> None:
    for version in (1, 2):
        folder = tmp_path / f"..v{version}"
        folder.mkdir()
        (folder / "infer.yaml").write_text(f"limits: {{max_queued: {version}}}\n")
    data = tmp_path / "..data"
    data.symlink_to("..v1")
    scene.path.unlink()
    scene.path.symlink_to("..data/infer.yaml")
    scene.watch(SHORT_S)
    swapped = tmp_path / "..data_tmp"
    swapped.symlink_to("..v2")
    swapped.replace(data)
    loaded, _ = await scene.next_change()
    assert loaded.settings.limits.max_queued == 2


async def test_a_callback_that_fails_does_not_end_the_watch(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    told: asyncio.Queue[int] = asyncio.Queue()

    def take_over(loaded: Loaded, change: Diff) -> None:
        told.put_nowait(loaded.settings.limits.max_queued)
        raise RuntimeError("no")

    watcher = Watcher(
        load(scene.path, environment={}),
        load=lambda: load(scene.path, environment={}),
        on_change=take_over,
        on_error=scene.told.put_nowait,
        interval_s=LONG_S,
    )
    async with TaskOwner("failing") as owner:
        owner.start("watch", watcher.run())
        for wanted in (2, 3):
            scene.write(f"limits: {{max_queued: {wanted}}}\n")
            watcher.poke()
            assert await told.get() == wanted
    assert "taking over a changed configuration failed" in caplog.text
