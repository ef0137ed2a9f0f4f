from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return Store(LocalFiles(tmp_path / "store"), "toy")
