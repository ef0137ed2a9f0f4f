from __future__ import annotations

from pathlib import Path

import msgspec

from checkpoints.probe.diagnosis import Cause
from checkpoints.probe.parity import limits_for

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
PAIRS = {
    "float32 – float32": ("float32", "float32"),
    "float32 – bfloat16, float16": ("float32", "bfloat16"),
    "bfloat16 – bfloat16": ("bfloat16", "bfloat16"),
    "… – 8 bit": ("bfloat16", "fp8"),
}


def test_the_page_lists_the_default_limits() -> None:
    rows = {cells[1].strip(): cells[2:-1] for cells in (line.split("|") for line in PAGE.splitlines()) if len(cells) == 10}  # fmt: skip  # noqa: E501
    for label, pair in PAIRS.items():
        wanted = tuple(msgspec.structs.astuple(limits_for(*pair)))
        assert tuple(float(cell) for cell in rows[label]) == wanted, label


def test_the_page_explains_every_cause() -> None:
    assert [cause for cause in Cause if f"`{cause}`" not in PAGE and cause is not Cause.NONE] == []
