"""Earlier samples that are trained on again, with what users said of them. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from checkpoints.feedback import Feedback
from training.rl.sampling import Sample


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
