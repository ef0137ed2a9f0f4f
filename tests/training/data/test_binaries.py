"""Parquet, HDF5 and TFRecord, written and read where their packages are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.training.runs import BIN, ROOT, done, run

pytestmark = pytest.mark.training


def test_binary_formats_are_read_and_broken_files_named(tmp_path: Path) -> None:
    program = Path(__file__).with_name("binary_files.py")
    ended = run(tmp_path, BIN / "python", program, tmp_path, PYTHONPATH=str(ROOT))
    done(ended)
    found = msgspec.json.decode(ended.stdout)

    assert found["good.parquet"] == [{"text": "a", "n": 1}, {"text": "b", "n": 2}]
    assert found["good.h5"] == [{"text": "a", "n": 1}, {"text": "é", "n": 2}]
    assert found["good.tfrecord"] == [{"text": "a", "n": [1, 2]}, {"text": "é", "n": [1, 2]}]
    for name, said in (
        ("broken.parquet", "is not valid Parquet"),
        ("broken.h5", "is not valid HDF5"),
        ("broken.tfrecord", "is no TFRecord"),
        ("cut.tfrecord", "record 1: the file ends in the middle of it"),
        ("damaged.tfrecord", "record 0: is damaged"),
        ("uneven.h5", "differ in length"),
    ):
        assert said in found[name], name
        assert name in found[name]
    prepared = found["prepared"]
    assert "odd.jsonl line 2: text is empty; mend it, or" in prepared["refused"]
    assert (prepared["records"], prepared["skipped"]) == (7, 1)
    assert prepared["said"][-1] == "skipped: odd.jsonl line 2: text is empty"
