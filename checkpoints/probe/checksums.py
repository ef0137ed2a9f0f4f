"""Compares an engine's own checksums of its weights with the checkpoint's bytes, where it gives any.

vLLM (0.32, developer mode) answers `/weight_checker` with a sha256 of each parameter's memory. On CPU
most matrices are repacked and come out empty, norms, embeddings and the head do not: exactly the
small tensors that a probe's numbers hardly show. Fused parameters are their parts one after the
other; embeddings are padded with zero rows to a multiple of 64. Parameters that differ between
tensor-parallel ranks are pieces and left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from checkpoints.contents import Contents, read_contents
from checkpoints.tensors import Tensor

_EMPTY = hashlib.sha256().hexdigest()
_PADDED_ROWS = 64
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_BLOCK_BYTES = 4 * 1024 * 1024


class Compared(msgspec.Struct, frozen=True):
    """Which of the engine's parameters have the checkpoint's bytes, and which do not."""

    equal: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    @property
    def meaningful(self) -> bool:
        """Most are equal: otherwise the engine holds its weights in another dtype or form."""
        return len(self.equal) > len(self.different)


def compare(folder: Path, reported: Mapping[str, str]) -> Compared:
    """Compare the engine's `reported` checksums (rank prefix and name → sha256) with a version's folder.

    Raises:
        OSError: the folder cannot be read.
    """
    contents = read_contents(folder)
    equal: list[str] = []
    different: list[str] = []
    for name, digest in _whole(reported).items():
        parts = _parts(contents, name)
        if parts is not None:
            (equal if digest in _digests(folder, parts) else different).append(name)
    return Compared(tuple(sorted(equal)), tuple(sorted(different)))


def _whole(reported: Mapping[str, str]) -> dict[str, str]:
    """Name without the rank → checksum, where all ranks agree and there is something to compare."""
    by_name: dict[str, set[str]] = {}
    for key, digest in reported.items():
        by_name.setdefault(key.rpartition(":")[2], set()).add(digest)
    return {
        name: next(iter(found)) for name, found in by_name.items() if len(found) == 1 and _EMPTY not in found
    }


def _parts(contents: Contents, name: str) -> list[tuple[str, Tensor]] | None:
    places = {
        tensor.name: (file, tensor) for file, header in contents.headers.items() for tensor in header.tensors
    }
    if name in places:
        return [places[name]]
    for fused, parts in _FUSED.items():
        names = [name.replace(f".{fused}.", f".{part}.") for part in parts]
        if f".{fused}." in name and all(part in places for part in names):
            return [places[part] for part in names]
    return None


def _digests(folder: Path, parts: list[tuple[str, Tensor]]) -> set[str]:
    """The sha256 of the parts' bytes, as they are and padded to a whole number of row blocks."""
    total = hashlib.sha256()
    for file, tensor in parts:
        for block in _read(folder / file, tensor):
            total.update(block)
    found = {total.hexdigest()}
    tensor = parts[0][1]
    if len(parts) == 1 and len(tensor.shape) == 2 and tensor.shape[0]:
        row = (tensor.end - tensor.start) // tensor.shape[0]
        total.update(bytes(-tensor.shape[0] % _PADDED_ROWS * row))
        found.add(total.hexdigest())
    return found


def _read(path: Path, tensor: Tensor) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(tensor.start)
        for start in range(tensor.start, tensor.end, _BLOCK_BYTES):
            yield file.read(min(_BLOCK_BYTES, tensor.end - start))
