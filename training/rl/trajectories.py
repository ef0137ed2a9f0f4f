"""What was sampled and what it was worth, as Parquet in the store; and the pool to train on again.

One file for each process and batch, created once. Columns: run, step, version, label, request, index, prompt,
completion, prompt_ids, completion_ids, logprobs (of the engine, null where there was none), rewards (one for
each reward function, null where it gave none), reward_names, rating, at. Needs pyarrow.
"""

from __future__ import annotations

import io
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoints.feedback import Feedback
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


class Pool:
    """Groups of earlier samples by prompt, with what users said of them; each is given once in a round."""

    def __init__(self, groups: Iterable[Sequence[Sample]]) -> None:
        self._groups: dict[tuple[int, ...], deque[Sequence[Sample]]] = defaultdict(deque)
        for group in groups:
            if group:
                self._groups[group[0].prompt_ids].append(group)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def group(self, prompt: Sequence[int], count: int) -> list[Sample] | None:
        """`count` earlier samples of the prompt; None: no group has as many."""
        groups = self._groups.get(tuple(prompt))
        for _ in range(len(groups or ())):
            assert groups is not None
            groups.rotate(-1)
            if len(groups[-1]) >= count:
                return list(groups[-1][:count])
        return None


def pool(
    rows: Iterable[Mapping[str, Any]],
    said: Iterable[Feedback],
    encode_prompt: Callable[[str], tuple[int, ...]],
    encode_answer: Callable[[str], tuple[int, ...]],
) -> Pool:
    """Join ratings with the samples that they are of; other rated answers form groups by their prompt.

    The last rating of an answer counts. Those others have no log-probabilities, so they are trained on as if
    the present policy had given them.
    """
    ratings: dict[tuple[str, int | None], Feedback] = {}
    for entry in said:
        ratings[entry.request_id, entry.index] = entry
    by_request: dict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        sample = _sample(row)
        word = ratings.get((sample.request, sample.index)) or ratings.get((sample.request, None))
        by_request[sample.request].append(sample if word is None else replace(sample, rating=word.rating))
    foreign: dict[tuple[int, ...], list[Sample]] = defaultdict(list)
    for entry in ratings.values():
        if entry.request_id in by_request or not entry.prompt or not entry.completion:
            continue
        sample = _told(entry, encode_prompt(entry.prompt), encode_answer(entry.completion))
        foreign[sample.prompt_ids].append(sample)
    return Pool([*by_request.values(), *foreign.values()])


def _sample(row: Mapping[str, Any]) -> Sample:
    return Sample(
        prompt_ids=tuple(row["prompt_ids"]),
        ids=tuple(row["completion_ids"]),
        logprobs=tuple(row["logprobs"]),
        label=row["label"],
        version=row["version"],
        request=row["request"],
        index=row["index"],
        rating=row["rating"],
        offline=True,
    )


def _told(entry: Feedback, prompt: tuple[int, ...], answer: tuple[int, ...]) -> Sample:
    nothing, index = (None,) * len(answer), entry.index or 0
    return Sample(prompt, answer, nothing, "", 0, entry.request_id, index, entry.rating, offline=True)
