"""Run by the engine's Python: writes files in binary formats, good and bad, and prints what is read.

python binary_files.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
from tfrecord.writer import TFRecordWriter

from training.config.kinds import BadRecords, Method, TextUnit
from training.config.tree import Data
from training.data.errors import DataError
from training.data.formats import read_records
from training.data.prepare import prepare_corpus


def main(folder: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), folder / "good.parquet")
    with h5py.File(folder / "good.h5", "w") as file:
        file["text"] = ["a", "é"]
        file["n"] = [1, 2]
    with h5py.File(folder / "uneven.h5", "w") as file:
        file["text"] = ["a", "b"]
        file["n"] = [1]
    writer = TFRecordWriter(str(folder / "good.tfrecord"))
    for text in (b"a", "é".encode()):
        writer.write({"text": (text, "byte"), "n": ([1, 2], "int")})
    writer.close()
    whole = (folder / "good.tfrecord").read_bytes()
    (folder / "cut.tfrecord").write_bytes(whole[:-3])
    (folder / "damaged.tfrecord").write_bytes(whole[:20] + b"\x00" + whole[21:])
    for name in ("broken.parquet", "broken.h5", "broken.tfrecord"):
        (folder / name).write_bytes(b"not what the name says, not at all")
    found = {path.name: read(path) for path in sorted(folder.iterdir())}
    found["prepared"] = prepared(folder)
    print(json.dumps(found))  # noqa: TID251 (plain data for the test)


def read(path: Path) -> object:
    try:
        return [each.record for each in read_records(path, TextUnit.FILE)]
    except DataError as error:
        return str(error)


def prepared(folder: Path) -> object:
    """How many records of all good files come together, once with an odd one among them."""
    odd = folder / "odd.jsonl"
    odd.write_text('{"text": "x"}\n{"text": ""}\n')
    good = [*sorted(folder.glob("good.*")), odd]
    try:
        prepare_corpus(good, Data(path="x"), Method.SFT, folder / "out", lambda line: None)
    except DataError as error:
        refused = str(error)
    skipping = Data(path="x", on_bad_record=BadRecords.SKIP)
    said: list[str] = []
    corpora = [prepare_corpus(good, skipping, Method.SFT, folder / "out", said.append) for _ in range(2)]
    assert corpora[0] == corpora[1]
    return {"refused": refused, "records": corpora[0].records, "skipped": corpora[0].skipped, "said": said}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
