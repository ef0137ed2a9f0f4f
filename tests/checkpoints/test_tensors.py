from __future__ import annotations

import struct
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.errors import TensorFileError
from checkpoints.tensors import build_header, parse_header, read_header
from tests.checkpoints.models import random_tensor, safetensors, weights


def _file(table: object, data: bytes = b"") -> bytes:
    body = msgspec.json.encode(table)
    return struct.pack("<Q", len(body)) + body + data


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_names_shapes_and_places_are_read(tmp_path: Path) -> None:
    tensors = weights()
    raw = safetensors(tensors)
    (tmp_path / "m.safetensors").write_bytes(raw)
    header = read_header(tmp_path / "m.safetensors")
    assert {
        tensor.name: (tensor.dtype, tensor.shape, raw[tensor.start : tensor.end]) for tensor in header.tensors
    } == tensors
    assert header.metadata == {"format": "pt"}


@pytest.mark.parametrize(
    ("table", "data", "reason"),
    [
        ({"a": _entry("F32", [2], 0, 8)}, b"1234567", "truncated"),
        ({"a": _entry("F32", [2], 0, 8)}, b"123456789", "1 bytes after the last tensor"),
        ({"a": _entry("F32", [2], 0, 4)}, b"1234", "is 8 bytes, its offsets span 4"),
        ({"a": _entry("F32", [1], 0, 4), "b": _entry("F32", [1], 8, 12)}, b"x" * 12, "leaves a gap"),
        ({"a": _entry("F32", [1], 0, 4), "b": _entry("F32", [1], 2, 6)}, b"x" * 6, "overlaps"),
        ({"a": _entry("F99", [1], 0, 4)}, b"1234", "unknown dtype 'F99'"),
        ({"a": _entry("F32", [-1], 0, 4)}, b"1234", "not what safetensors writes"),
        ({"a": _entry("F32", [1], -4, 0)}, b"1234", "not what safetensors writes"),
        ({"a": _entry("F32", [2**40, 2**40], 0, 4)}, b"1234", "its offsets span 4"),
        ({"a": _entry("F32", [1] * 40, 0, 4)}, b"1234", "40 dimensions"),
        ({"a": {"dtype": "F32"}}, b"", "not what safetensors writes"),
        ([], b"", "not what safetensors writes"),
    ],
)
def test_an_inconsistent_header_says_why(table: object, data: bytes, reason: str) -> None:
    raw = _file(table, data)
    with pytest.raises(TensorFileError, match=reason):
        parse_header(raw, len(raw), "x")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"PK\x03\x04aaaaaaaa", "pickle"),
        (b"\x80\x02}q\x00.aaaaaa", "pickle"),
        (b"GGUF\x03\0\0\0\xff\0\0\0", "GGUF"),
        (b"", "truncated"),
        (b"\xff" * 20, "header length"),
        (struct.pack("<Q", 50) + b"{}", "truncated"),
    ],
)
def test_other_formats_are_recognised(raw: bytes, reason: str) -> None:
    with pytest.raises(TensorFileError, match=reason):
        parse_header(raw, len(raw), "x")


@pytest.mark.parametrize("length", [0x0280, 0x4B50])
def test_a_header_whose_length_looks_like_a_magic_number_is_read(length: int) -> None:
    table = {"__metadata__": {"pad": ""}}
    table["__metadata__"]["pad"] = " " * (length - len(msgspec.json.encode(table)))
    raw = _file(table)
    assert raw[:2] in (b"\x80\x02", b"PK")
    assert parse_header(raw, len(raw), "x").tensors == ()


@given(st.binary(max_size=200))
def test_noise_raises_nothing_but_the_one_error(raw: bytes) -> None:
    try:
        parse_header(raw, len(raw), "x")
    except TensorFileError:
        return
    assert raw[8:].strip() in (b"{}", b'{"__metadata__":{}}')


def test_a_built_header_reads_back() -> None:
    raw = build_header([("a", "BF16", (2, 3), 12), ("b", "F32", (), 4)], {"k": "v"}) + bytes(16)
    header = parse_header(raw, len(raw), "x")
    assert header.data_start % 8 == 0
    assert [(tensor.name, tensor.shape, tensor.start - header.data_start) for tensor in header.tensors] == [
        ("a", (2, 3), 0),
        ("b", (), 12),
    ]


def test_reading_a_header_does_not_read_the_weights(tmp_path: Path) -> None:
    size = 64 * 1024**3
    path = tmp_path / "huge.safetensors"
    head = build_header([("a", "U8", (size,), size)], {})
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    start = time.monotonic()
    assert read_header(path).tensors[0].end == len(head) + size
    assert time.monotonic() - start < 5


def test_the_helpers_make_distinct_numbers() -> None:
    assert random_tensor((4,), 1) != random_tensor((4,), 2)
