"""Versions on this machine: whole or not there, shared by agents, kept while used."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from backends.agent.copies import UNTIED, Copies
from backends.agent.weights import base_weights
from backends.models.resolve import ResolvedModel
from checkpoints.draft import Request
from checkpoints.errors import CheckpointError, StoreError
from checkpoints.publish import publish
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from tests.checkpoints.models import CONFIG, weights, write_adapter, write_model

BASE = base_weights("base-00000000", ResolvedModel("org/model", local=False))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"), "m")


def published(store: Store, tmp_path: Path, seed: int) -> int:
    source = write_model(tmp_path / f"source-{seed}", seed=seed)
    return publish(source, store, Request(run="r", step=seed)).manifest.version


def copies(store: Store, tmp_path: Path, keep: int = 2) -> Copies:
    return Copies(tmp_path / "local", store, BASE, keep)


def names(tmp_path: Path) -> set[str]:
    """What lies there, but for lock files."""
    return {path.name for path in (tmp_path / "local").iterdir() if path.is_dir()}


def test_a_copy_is_verified_and_named_by_its_label(store: Store, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    found = copies(store, tmp_path).fetch(published(store, tmp_path, 1), lambda *at: told.append(at))

    digest = store.manifest(1).digest
    assert (found.label, found.number, found.digest) == (f"v1-{digest[:8]}", 1, digest)
    assert names(tmp_path) == {found.label}
    assert found.folder == tmp_path / "local" / found.label
    assert told[-1][0] == told[-1][1] == store.manifest(1).size()


def test_the_base_needs_no_copy(store: Store, tmp_path: Path) -> None:
    assert copies(store, tmp_path).fetch(0) is BASE


def test_a_version_that_is_not_there_is_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="m has no version 3"):
        copies(store, tmp_path).fetch(3)


@pytest.mark.fault("S2")
def test_a_byte_that_was_changed_in_the_store_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    version = published(store, tmp_path, 1)
    folder = store.files.local(store.manifest(version).data)
    assert folder is not None
    _flip(folder / "model.safetensors")

    with pytest.raises(CheckpointError, match="altered"):
        copies(store, tmp_path).fetch(version)
    assert names(tmp_path) == set()


@pytest.mark.fault("S2")
def test_a_byte_that_the_disk_has_changed_is_found_by_the_next_agent(store: Store, tmp_path: Path) -> None:
    version = published(store, tmp_path, 1)
    found = copies(store, tmp_path).fetch(version)
    assert found.folder is not None
    before = (found.folder / "model.safetensors").read_bytes()
    _flip(found.folder / "model.safetensors")

    copies(store, tmp_path).fetch(version)

    assert (found.folder / "model.safetensors").read_bytes() == before


def test_what_an_agent_that_was_killed_had_begun_is_swept(store: Store, tmp_path: Path) -> None:
    abandoned = tmp_path / "local" / ".v9-00000000.partial-x"
    abandoned.mkdir(parents=True)
    (abandoned / "model.safetensors").write_bytes(b"half")
    keeper = copies(store, tmp_path)
    found = keeper.fetch(published(store, tmp_path, 1))
    keeper.keep_only({found})

    assert names(tmp_path) == {found.label}


def test_many_who_want_the_same_share_one_copy(store: Store, tmp_path: Path) -> None:
    version = published(store, tmp_path, 1)
    agents = [copies(store, tmp_path) for _ in range(6)]
    found: list[object] = []
    threads = [threading.Thread(target=lambda a=a: found.append(a.fetch(version))) for a in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 6
    assert len(set(map(repr, found))) == 1
    assert len(names(tmp_path)) == 1


def test_the_oldest_that_nobody_uses_is_removed(store: Store, tmp_path: Path) -> None:
    here, beside = copies(store, tmp_path), copies(store, tmp_path)
    found = [here.fetch(published(store, tmp_path, seed)) for seed in (1, 2, 3, 4)]
    beside.fetch(2)

    here.keep_only({found[3]})
    assert names(tmp_path) == {found[1].label, found[2].label, found[3].label}, "another agent uses v2"

    beside.close()
    here.keep_only({found[3]})
    assert names(tmp_path) == {found[2].label, found[3].label}


@pytest.mark.fault("S13")
def test_a_tied_version_gets_an_output_head_of_its_own(store: Store, tmp_path: Path) -> None:
    config = {**CONFIG, "tie_word_embeddings": True}
    source = write_model(
        tmp_path / "tied", {k: v for k, v in weights(config).items() if k != "lm_head.weight"}, config
    )
    version = publish(source, store, Request(run="r", step=1, untie=False)).manifest.version

    found = copies(store, tmp_path).fetch(version)

    assert found.folder is not None
    assert found.folder.name == found.label + UNTIED
    assert b'"tie_word_embeddings": false' in (found.folder / "config.json").read_bytes()
    assert found.version == tmp_path / "local" / found.label


def test_an_adapter_brings_the_weights_that_it_rests_on(store: Store, tmp_path: Path) -> None:
    base = published(store, tmp_path, 1)
    adapter = write_adapter(tmp_path / "adapter")
    version = publish(adapter, store, Request(run="r", step=2, base=base)).manifest.version
    keeper = copies(store, tmp_path)

    found = keeper.fetch(version)

    assert found.model == keeper.fetch(base).model
    assert found.adapter == tmp_path / "local" / found.label
    assert found.adapter_name == f"adapter-{found.label}"
    keeper.keep_only({found})
    assert len(names(tmp_path)) == 2


def test_a_disk_that_is_too_small_says_so_before_anything_is_copied(store: Store, tmp_path: Path) -> None:
    class Huge(Store):
        """Claims a size that no disk has."""

        def manifest(self, version: int) -> object:  # type: ignore[override]
            import msgspec

            found = super().manifest(version)
            files = [msgspec.structs.replace(entry, size=10**18) for entry in found.files]
            return msgspec.structs.replace(found, files=tuple(files))

    version = published(store, tmp_path, 1)
    with pytest.raises(StoreError, match="MB free, the copy needs"):
        copies(Huge(store.files, "m"), tmp_path).fetch(version)
    assert names(tmp_path) == set()


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
