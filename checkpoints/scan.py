"""Looks at the numbers of each tensor: NaN, infinities, nothing but zeros.

`FULL` reads every byte; `SAMPLED` reads the beginning, the end and evenly spaced blocks of each
tensor, which finds what is wrong with a whole tensor or a large part of it in bounded time; the
`NONE` reads headers only. Memory is one block a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from checkpoints import architecture
from checkpoints.contents import Contents
from checkpoints.numbers import count_not_finite, is_zero
from checkpoints.tensors import DTYPE_BITS, Tensor
from checkpoints.verdict import Code, Finding

_BLOCK_BYTES = 1024 * 1024
_SAMPLE_BYTES = 4096
_SAMPLES = 16


class Scan(StrEnum):
    """How much of the weights is read."""

    FULL = "full"
    SAMPLED = "sampled"
    NONE = "none"


def scan_tensors(folder: Path, contents: Contents, how: Scan) -> list[Finding]:
    """Findings about the numbers; raises `OSError` if a file cannot be read."""
    broken: list[str] = []
    zeros: list[str] = []
    for name, header in contents.headers.items():
        with (folder / name).open("rb") as file:
            for tensor in header.tensors:
                bad, empty = 0, True
                for start, length in _blocks(tensor, how):
                    file.seek(start)
                    data = file.read(length)
                    bad += count_not_finite(data, tensor.dtype)
                    empty = empty and is_zero(data)
                if bad:
                    broken.append(f"{tensor.name} ({bad} of {'all' if how is Scan.FULL else 'a sample'})")
                if empty and tensor.end > tensor.start:
                    zeros.append(tensor.name)
    findings: list[Finding] = []
    if broken:
        findings.append(Finding(Code.NOT_FINITE, "NaN or infinite numbers", tuple(broken)))
    return findings + _judge_zeros(zeros, contents)


def _judge_zeros(zeros: list[str], contents: Contents) -> list[Finding]:
    normal = [name for name in zeros if architecture.zero_is_normal(name, contents.config)]
    wrong = [name for name in zeros if name not in normal]
    findings: list[Finding] = []
    if wrong:
        findings.append(Finding(Code.ZEROS, "nothing but zeros", tuple(wrong)))
    if normal:
        findings.append(Finding(Code.ZEROS, "nothing but zeros", tuple(normal), refuses=False))
    return findings


def _blocks(tensor: Tensor, how: Scan) -> Iterator[tuple[int, int]]:
    size = tensor.end - tensor.start
    if how is Scan.FULL or size <= _SAMPLE_BYTES * _SAMPLES:
        for start in range(tensor.start, tensor.end, _BLOCK_BYTES):
            yield start, min(_BLOCK_BYTES, tensor.end - start)
        return
    width = max(DTYPE_BITS[tensor.dtype] // 8, 1)
    for index in range(_SAMPLES):
        offset = (size - _SAMPLE_BYTES) * index // (_SAMPLES - 1)
        yield tensor.start + offset - offset % width, _SAMPLE_BYTES
