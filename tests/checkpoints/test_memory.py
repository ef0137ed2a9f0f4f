from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loadtests.publish.models import write_llama

SCRIPT = """
import resource, sys
from pathlib import Path
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from checkpoints.verify import verify_folder
store = Store(LocalFiles(Path(sys.argv[2])), "toy")
manifest = publish(Path(sys.argv[1]), store, Request("run", 1)).manifest
store.fetch(1, Path(sys.argv[2] + "-fetched"))
assert not verify_folder(Path(sys.argv[2] + "-fetched"), manifest=manifest).refused
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
ALLOWED_GROWTH_MIB = 40


def _peak_mib(root: Path, layers: int) -> tuple[int, int]:
    """MiB of the weights, and the most memory that publishing, fetching and verifying them took."""
    size = write_llama(root / "model", hidden=512, inner=2048, layers=layers, shards=1, seed=1)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root / "model"), str(root / "store")],
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    return size // 1024**2, int(done.stdout)


def test_memory_does_not_grow_with_the_size_of_the_weights(tmp_path: Path) -> None:
    small, little = _peak_mib(tmp_path / "small", 1)
    large, much = _peak_mib(tmp_path / "large", 24)
    assert large - small > 5 * ALLOWED_GROWTH_MIB / 2
    assert much - little < ALLOWED_GROWTH_MIB
