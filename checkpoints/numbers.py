"""What a tensor's raw bytes say without a numeric library: not-a-number, infinity, nothing but zeros.

A float is NaN or infinite when all exponent bits are one. That is tested on the byte that holds
most of the exponent, with `bytes.translate` and `in` (C speed), and looked at closely only where
this byte is suspicious. Pure functions of bytes in the file's little-endian order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

# dtype → (width, offset of the top byte, values of the top byte that may mean "all ones")
_TOP = {
    "BF16": (2, bytes([0x7F, 0xFF])),
    "F32": (4, bytes([0x7F, 0xFF])),
    "F64": (8, bytes([0x7F, 0xFF])),
    "F16": (2, bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)])),
    "F8_E5M2": (1, bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)])),
    "F8_E4M3": (1, bytes([0x7F, 0xFF])),
    "F8_E8M0": (1, bytes([0xFF])),
}


def is_float(dtype: str) -> bool:
    """The dtype can hold NaN."""
    return dtype in _TOP


def count_not_finite(data: bytes, dtype: str) -> int:
    """How many elements are NaN or infinite; 0 for integer dtypes. `data` holds whole elements."""
    if dtype not in _TOP:
        return 0
    width, suspects = _TOP[dtype]
    top = data[width - 1 :: width]
    suspicious = len(top) - len(top.translate(None, suspects))
    if not suspicious or width == 1 or dtype == "F16":
        return suspicious
    return sum(1 for position in _positions(top, suspects) if _all_ones(data, position, width))


def is_zero(data: bytes) -> bool:
    """Every byte is zero."""
    return not data.strip(b"\0")


def _positions(top: bytes, suspects: bytes) -> Iterator[int]:
    for suspect in suspects:
        at = top.find(suspect)
        while at >= 0:
            yield at
            at = top.find(suspect, at + 1)


def _all_ones(data: bytes, position: int, width: int) -> bool:
    """Element `position` has an exponent of ones, given a top byte of 0x7F or 0xFF."""
    element = data[position * width : (position + 1) * width]
    if width == 8:
        return bool((struct.unpack("<Q", element)[0] >> 52) & 0x7FF == 0x7FF)
    return bool(element[-2] & 0x80)
