"""Safetensors headers, read by hand so that nothing but bytes is trusted.

Format (huggingface/safetensors README): 8 bytes little-endian header length, a JSON object
name → {dtype, shape, data_offsets}, then the data. Every bound is checked: header length, JSON,
dtype, shape, offsets inside the file, size = elements × width, no gap, no overlap, no rest.
Only the header is read, so cost and memory do not depend on the size of the weights.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import msgspec

from checkpoints.errors import TensorFileError

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
DTYPE_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip
_MAX_RANK = 16
_ZIP_MAGIC = b"PK\x03\x04"
_PICKLE_PROTOCOL = 0x80
_GGUF_MAGIC = b"GGUF"

Index = Annotated[int, msgspec.Meta(ge=0)]


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[Index]
    data_offsets: tuple[Index, Index]


class Tensor(msgspec.Struct, frozen=True):
    """One tensor of a file; `start` and `end` are byte offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Header(msgspec.Struct, frozen=True):
    """A file's tensors in the order of their data, which begins at `data_start`."""

    data_start: int
    tensors: tuple[Tensor, ...]
    metadata: dict[str, str]


def read_header(path: Path, name: str | None = None) -> Header:
    """Read one file's header; `name` names it in errors.

    Raises:
        TensorFileError: not safetensors, truncated, or inconsistent in any way.
        OSError: it cannot be read.
    """
    shown = name or path.name
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        prefix = file.read(8)
        length = _header_length(prefix, size, shown)
        raw = file.read(length)
    return parse_header(prefix + raw, size, shown)


def parse_header(raw: bytes, size: int, shown: str) -> Header:
    """The header in `raw` (length prefix included) of a file of `size` bytes; raises `TensorFileError`."""
    length = _header_length(raw[:8], size, shown)
    try:
        entries = msgspec.json.decode(raw[8 : 8 + length], type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(entries.pop("__metadata__", msgspec.Raw(b"{}")), type=dict[str, str])
        decoder = msgspec.json.Decoder(_Raw)
        decoded = {name: decoder.decode(entry) for name, entry in entries.items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TensorFileError(shown, f"its header is not what safetensors writes: {error}") from error
    start = 8 + length
    tensors = [_tensor(name, entry, start, shown) for name, entry in decoded.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    _check_layout(tensors, start, size, shown)
    return Header(start, tuple(tensors), metadata)


def build_header(tensors: list[tuple[str, str, tuple[int, ...], int]], metadata: dict[str, str]) -> bytes:
    """A file's first bytes for (name, dtype, shape, bytes) in the order of their data, padded to 8 bytes."""
    table: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, dtype, shape, length in tensors:
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": (offset, offset + length)}
        offset += length
    body = msgspec.json.encode(table)
    body += b" " * (-len(body) % 8)
    return len(body).to_bytes(8, "little") + body


def _header_length(prefix: bytes, size: int, shown: str) -> int:
    if len(prefix) < 8:
        raise TensorFileError(shown, f"truncated: {len(prefix)} bytes, too short for a header")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise TensorFileError(shown, _what_it_is(prefix, length))
    if 8 + length > size:
        raise TensorFileError(shown, f"truncated: its header needs {8 + length} bytes, the file has {size}")
    return length


def _what_it_is(prefix: bytes, length: int) -> str:
    if prefix[:4] == _ZIP_MAGIC or prefix[0] == _PICKLE_PROTOCOL:
        return "is a pickle (torch.save), which can run code on load: save as safetensors"
    if prefix[:4] == _GGUF_MAGIC:
        return "is GGUF: save as safetensors"
    return f"is not safetensors: header length {length}"


def _tensor(name: str, entry: _Raw, data_start: int, shown: str) -> Tensor:
    bits = DTYPE_BITS.get(entry.dtype)
    if bits is None:
        raise TensorFileError(shown, f"tensor {name}: unknown dtype {entry.dtype!r}")
    if len(entry.shape) > _MAX_RANK:
        raise TensorFileError(shown, f"tensor {name}: {len(entry.shape)} dimensions")
    begin, end = entry.data_offsets
    needed = (math.prod(entry.shape) * bits + 7) // 8
    if end - begin != needed:
        raise TensorFileError(
            shown,
            f"tensor {name}: {entry.dtype} {entry.shape} is {needed} bytes, its offsets span {end - begin}",
        )
    return Tensor(name, entry.dtype, tuple(entry.shape), data_start + begin, data_start + end)


def _check_layout(tensors: list[Tensor], data_start: int, size: int, shown: str) -> None:
    position = data_start
    for tensor in tensors:
        if tensor.start != position:
            kind = "overlaps the one before" if tensor.start < position else "leaves a gap before it"
            raise TensorFileError(shown, f"tensor {tensor.name} {kind}")
        position = tensor.end
    if position > size:
        raise TensorFileError(shown, f"truncated: its tensors need {position} bytes, the file has {size}")
    if position < size:
        raise TensorFileError(shown, f"{size - position} bytes after the last tensor belong to nothing")
