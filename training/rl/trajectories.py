"""What was sampled and what it was worth, as Parquet in the store.

One file for each process and batch, created once. Columns: run, step, version, label, request, index, prompt,
completion, prompt_ids, completion_ids, logprobs (of the engine, null where there was none), rewards (one for
each reward function, null where it gave none), reward_names, rating, at. Needs pyarrow.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoints.store.contract import Files
from training.rl.sampling import Sample

FOLDER = "trajectories"
READ_FILES = 200
"""Newest files that a pool is made of."""

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("step", pa.int64()),
        ("version", pa.int64()),
        ("label", pa.string()),
        ("request", pa.string()),
        ("index", pa.int32()),
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("completion_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("rewards", pa.list_(pa.float64())),
        ("reward_names", pa.list_(pa.string())),
        ("rating", pa.float64()),
        ("at", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one step with their texts and rewards, in the same order."""

    run: str
    step: int
    samples: Sequence[Sample]
    prompts: Sequence[str]
    completions: Sequence[str]
    rewards: Sequence[Sequence[float | None]]
    reward_names: Sequence[str]
    at: str


def encode(batch: Batch) -> bytes:
    """The bytes of a Parquet file."""
    samples, count = batch.samples, len(batch.samples)
    columns: Mapping[str, Sequence[object]] = {
        "run": [batch.run] * count,
        "step": [batch.step] * count,
        "version": [one.version for one in samples],
        "label": [one.label for one in samples],
        "request": [one.request for one in samples],
        "index": [one.index for one in samples],
        "prompt": list(batch.prompts),
        "completion": list(batch.completions),
        "prompt_ids": [one.prompt_ids for one in samples],
        "completion_ids": [one.ids for one in samples],
        "logprobs": [one.logprobs for one in samples],
        "rewards": list(batch.rewards),
        "reward_names": [list(batch.reward_names)] * count,
        "rating": [one.rating for one in samples],
        "at": [batch.at] * count,
    }
    written = io.BytesIO()
    pq.write_table(pa.table(dict(columns), schema=SCHEMA), written, compression="zstd")
    return written.getvalue()


def keep(files: Files, batch: Batch, rank: int, kept: int) -> None:
    """Write a batch, and remove the oldest of its run beyond `kept` files. Raises StoreError."""
    folder = f"{FOLDER}/{batch.run}"
    files.create(f"{folder}/{batch.step:010d}-{rank}.parquet", encode(batch))
    for name in files.names(folder)[:-kept]:
        files.remove(f"{folder}/{name}")


def read(files: Files, last_files: int = READ_FILES) -> list[dict[str, Any]]:
    """Rows of the newest files of all runs, the oldest first. Raises StoreError."""
    paths = [
        f"{FOLDER}/{run}/{name}"
        for run in files.names(FOLDER)
        for name in files.names(f"{FOLDER}/{run}")
        if name.endswith(".parquet")
    ]
    rows: list[dict[str, Any]] = []
    for path in paths[-last_files:]:
        raw = files.read(path)
        if raw is not None:
            rows += pq.read_table(io.BytesIO(raw)).to_pylist()
    return rows
