"""A copy of a checkpoint whose weights all differ by much and are as large as before, made without torch.

Matrices are turned round element by element (the last becomes the first): another function of the same
magnitudes, made at the speed of copying in constant memory. What is the same when turned round, and every
vector, gets other numbers. Tokenizer and configuration stay.
"""

from __future__ import annotations

import math
import shutil
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from checkpoints.architecture import IGNORED
from checkpoints.contents import read_contents
from checkpoints.errors import CheckpointError
from checkpoints.tensors import DTYPE_BITS, Header, Tensor

CHUNK_BYTES = 8 * 1024 * 1024
"""A multiple of every element's width."""
_CODES: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS = {"F64": "d", "F32": "f", "F16": "e"}
_FIXED_SUFFIXES = ("g_idx", "shape", "perm", "zero_point")
"""Of quantised weights: indices and shapes, which must stay what they are."""


def write_perturbed(folder: Path, target: Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Write the copy to the new folder `target`, `chunk_bytes` at a time.

    Raises:
        CheckpointError: there are no weights in safetensors.
        OSError: reading or writing failed; `target` is incomplete then.
    """
    contents = read_contents(folder)
    if not contents.headers:
        raise CheckpointError(f"{folder} has no weights in safetensors")
    for name in contents.files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in contents.headers:
            _rewrite(folder / name, path, contents.headers[name], chunk_bytes)
        else:
            shutil.copyfile(folder / name, path)


def _rewrite(source: Path, target: Path, header: Header, chunk_bytes: int) -> None:
    with source.open("rb") as old, target.open("xb") as new:
        new.write(old.read(header.data_start))
        for tensor in header.tensors:
            for piece in _perturbed(old, tensor, chunk_bytes):
                new.write(piece)


def _perturbed(file: IO[bytes], tensor: Tensor, chunk_bytes: int) -> Iterator[bytes]:
    """The tensor's new bytes in order."""
    size = tensor.end - tensor.start
    if _must_stay(tensor):
        yield from _pieces(file, tensor, chunk_bytes)
    elif tensor.dtype in (*_FLOATS, "BF16") and (len(tensor.shape) < 2 or _is_palindrome(file, tensor)):
        for piece in _pieces(file, tensor, chunk_bytes):
            yield moved(piece, tensor.dtype)
    else:
        for end in range(size, 0, -chunk_bytes):
            begin = max(0, end - chunk_bytes)
            file.seek(tensor.start + begin)
            yield turned(file.read(end - begin), tensor.dtype)


def _pieces(file: IO[bytes], tensor: Tensor, chunk_bytes: int) -> Iterator[bytes]:
    for at in range(tensor.start, tensor.end, chunk_bytes):
        file.seek(at)
        yield file.read(min(chunk_bytes, tensor.end - at))


def _must_stay(tensor: Tensor) -> bool:
    whole_numbers = tensor.dtype[0] in "IUB" and tensor.dtype != "BF16"
    return bool(
        IGNORED.search(tensor.name)
        or tensor.name.endswith(_FIXED_SUFFIXES)
        or (whole_numbers and len(tensor.shape) < 2)
    )


def _is_palindrome(file: IO[bytes], tensor: Tensor) -> bool:
    """The first piece is the last one turned round: constant, as a bias of zeros."""
    width = DTYPE_BITS[tensor.dtype] // 8
    size = min(tensor.end - tensor.start, 64 * 1024 // width * width)
    file.seek(tensor.start)
    first = file.read(size)
    file.seek(tensor.end - size)
    return first == turned(file.read(size), tensor.dtype)


def turned(data: bytes, dtype: str) -> bytes:
    """The elements in the opposite order."""
    elements = array(_CODES[max(1, DTYPE_BITS[dtype] // 8)], data)
    elements.reverse()
    return elements.tobytes()


def moved(data: bytes, dtype: str) -> bytes:
    """Every element a quarter larger or smaller, by turns; zeros become a sixteenth, with either sign.

    Signs stay, so that what is a scale stays one.
    """
    step = (
        value * (1.25 if at % 2 else 0.75) if value else (0.0625 if at % 2 else -0.0625)
        for at, value in enumerate(_numbers(data, dtype))
    )
    return _bytes([value if math.isfinite(value) else 1.0 for value in step], dtype)


def _numbers(data: bytes, dtype: str) -> array[float] | tuple[float, ...]:
    if dtype == "BF16":
        return array("f", array("I", (half << 16 for half in array("H", data))).tobytes())
    return struct.unpack(f"<{len(data) * 8 // DTYPE_BITS[dtype]}{_FLOATS[dtype]}", data)


def _bytes(values: list[float], dtype: str) -> bytes:
    if dtype == "BF16":
        return array("H", (bits >> 16 for bits in array("I", array("f", values).tobytes()))).tobytes()
    limit = 65504.0 if dtype == "F16" else math.inf
    return struct.pack(f"<{len(values)}{_FLOATS[dtype]}", *(max(-limit, min(limit, v)) for v in values))
