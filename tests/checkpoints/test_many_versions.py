from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from checkpoints.draft import Request
from checkpoints.manifest import TENSORS_FILE, encode
from checkpoints.publish import publish
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from tests.checkpoints.models import write_model

COUNT = 10_000
SLOW_S = 20.0
"""Ten times what it should take: a loaded machine must not fail the test, a quadratic algorithm should."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of 10,000 versions: one real manifest, copied with other numbers."""
    root = tmp_path_factory.mktemp("many")
    store = Store(LocalFiles(root / "store"), "toy")
    first = publish(write_model(root / "m"), store, Request("run", 1)).manifest
    versions = root / "store" / "versions"
    for version in range(2, COUNT + 1):
        folder = versions / f"{version:010d}"
        (folder / "changeover").mkdir(parents=True)
        (folder / TENSORS_FILE).hardlink_to(versions / "0000000001" / TENSORS_FILE)
        made = msgspec.structs.replace(
            first, version=version, step=version, parent=version - 1, data=f"versions/{version:010d}"
        )
        (folder / "manifest.json").write_bytes(encode(made))
    return store


def test_ten_thousand_versions_are_listed_moved_and_collected_without_delay(many: Store) -> None:
    start = time.monotonic()
    assert len([many.manifest(version) for version in many.versions()]) == COUNT
    listed = time.monotonic()
    for version in (5, COUNT - 1, 17):
        many.point("serving", version, by="test")
    moved = time.monotonic()
    assert many.collect(keep_last=COUNT - 1000).remove == (*range(2, 17), *range(18, 1001))
    collected = time.monotonic()
    seconds = {"list": listed - start, "three moves": moved - listed, "gc": collected - moved}
    print(seconds)
    assert max(seconds.values()) < SLOW_S, seconds


def test_publishing_beside_ten_thousand_versions_takes_the_next_number(many: Store, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", seed=2)
    assert publish(folder, many, Request("new", 1)).manifest.version == COUNT + 1
