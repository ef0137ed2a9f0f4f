"""The weights that a run ends with: in the number type that the model came in, as engines expect it.

A run keeps its weights in float32 for the optimizer, and so do its checkpoints, which it goes on from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


def store_as(folder: Path, dtype: Any) -> None:
    """Rewrite the safetensors there, one file after the other, and config.json. dtype: torch's."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            metadata = file.metadata()
        if all(each.dtype == dtype or not each.is_floating_point() for each in tensors.values()):
            continue
        partial = path.with_name(f".{path.name}.partial")
        cast = {name: each.to(dtype) if each.is_floating_point() else each for name, each in tensors.items()}
        save_file(cast, partial, metadata=metadata)
        partial.replace(path)
    config = folder / "config.json"
    if config.exists():
        content = msgspec.json.decode(config.read_bytes(), type=dict[str, object])
        content["dtype"] = str(dtype).removeprefix("torch.")
        config.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
