from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.numbers import count_not_finite, is_float, is_zero


@given(st.lists(st.floats(width=32), max_size=50))
def test_every_nan_and_infinity_of_f32_is_counted(numbers: list[float]) -> None:
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    assert count_not_finite(data, "F32") == sum(not math.isfinite(number) for number in numbers)


@given(st.lists(st.floats(width=16), max_size=50))
def test_every_nan_and_infinity_of_f16_is_counted(numbers: list[float]) -> None:
    data = struct.pack(f"<{len(numbers)}e", *numbers)
    assert count_not_finite(data, "F16") == sum(not math.isfinite(number) for number in numbers)


@given(st.lists(st.floats(), max_size=50))
def test_every_nan_and_infinity_of_f64_is_counted(numbers: list[float]) -> None:
    data = struct.pack(f"<{len(numbers)}d", *numbers)
    assert count_not_finite(data, "F64") == sum(not math.isfinite(number) for number in numbers)


@given(st.lists(st.integers(0, 0xFFFF), max_size=50))
def test_every_nan_and_infinity_of_bf16_is_counted(words: list[int]) -> None:
    data = struct.pack(f"<{len(words)}H", *words)
    wanted = sum(
        not math.isfinite(struct.unpack("<f", b"\0\0" + struct.pack("<H", word))[0]) for word in words
    )
    assert count_not_finite(data, "BF16") == wanted


@pytest.mark.parametrize(
    ("dtype", "byte", "count"),
    [("F8_E4M3", 0x7F, 1), ("F8_E4M3", 0x7E, 0), ("F8_E5M2", 0x7C, 1), ("F8_E5M2", 0x7B, 0), ("I8", 0x7F, 0)],
)
def test_eight_bit_formats(dtype: str, byte: int, count: int) -> None:
    assert count_not_finite(bytes([0, byte]), dtype) == count
    assert is_float(dtype) == dtype.startswith("F")


def test_zeros() -> None:
    assert is_zero(bytes(10))
    assert is_zero(b"")
    assert not is_zero(b"\0\0\1\0")
