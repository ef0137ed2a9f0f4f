"""The name of the weights that an engine is launched with: equal for equal files, on every machine.

Answers are cached and compared by it, so a model that was replaced under the same name must get another.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from backends.models.resolve import ResolvedModel

SAMPLES = 64
SAMPLE_BYTES = 4096
"""Blocks read of each file, evenly spread: any training step changes them, and 100 GB take no longer."""
RELEVANT = ("*.json", "*.safetensors", "*.bin", "*.jinja", "*.model")


def launch_version(model: ResolvedModel) -> str:
    """`base-` and eight hex digits, from a sample of the files (a hub id: from the id alone)."""
    digest = hashlib.sha256()
    if model.local:
        folder = Path(model.source)
        for path in sorted({path for pattern in RELEVANT for path in folder.glob(pattern)}):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(_sample(path))
    else:
        digest.update(model.source.encode())
    return f"base-{digest.hexdigest()[:8]}"


def _sample(path: Path) -> bytes:
    size = path.stat().st_size
    step = max(SAMPLE_BYTES, size // SAMPLES)
    parts = []
    with path.open("rb") as file:
        for offset in range(0, size, step):
            file.seek(offset)
            parts.append(file.read(SAMPLE_BYTES))
    return b"".join(parts)
