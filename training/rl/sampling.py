"""What is asked of the gateway for a group of samples, and what comes back. Pure.

Sampling is always said explicitly: a model's `generation_config.json` changes an engine's defaults.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=Hashable)
VERSION, AT_LEAST, REQUEST = "x-model-version", "x-model-version-min", "x-request-id"
_LABEL = re.compile(r"v([1-9][0-9]{0,9})-[0-9a-f]{8}")


class BadAnswer(Exception):
    """The gateway's answer cannot be used; the message says why and what to look at."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How samples are drawn."""

    temperature: float
    top_p: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion: ids, their log-probabilities by the engine (None: not a number), and its origin."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    label: str
    """The version that computed it, as the gateway calls it."""
    version: int
    request: str
    index: int
    """Among the samples of its request."""
    rating: float | None = None
    """What users said of it."""
    offline: bool = False
    """Taken from kept trajectories."""


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] = []


class _Choice(msgspec.Struct):
    index: int = 0
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def body(model: str, prompt: Sequence[int], count: int, sampling: Sampling) -> bytes:
    """`/v1/completions` for a group: one request, so that its prompt is computed once."""
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": list(prompt),
            "n": count,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logprobs": 0,
            "return_token_ids": True,
            "stream": False,
        }
    )


def read(raw: bytes, label: str, request: str, prompt: Sequence[int], count: int) -> list[Sample]:
    """The samples of an answer, in the order of their index. Raises BadAnswer."""
    try:
        choices = msgspec.json.decode(raw, type=_Completion).choices
    except msgspec.DecodeError as error:
        raise BadAnswer(f"the answer is no completion: {error}") from error
    number = version_of(label)
    if number is None:
        raise BadAnswer(f"the answer is of version {label!r}, which the store did not give: serve by a store")
    if len(choices) != count:
        raise BadAnswer(f"{count} samples were asked for, {len(choices)} came")
    samples = []
    for choice in sorted(choices, key=lambda one: one.index):
        logprobs = choice.logprobs.token_logprobs if choice.logprobs is not None else []
        if not choice.token_ids or len(choice.token_ids) != len(logprobs):
            raise BadAnswer(
                "the answer lacks token ids or log-probabilities: the engine must be vLLM 0.32 or newer"
            )
        clean = tuple(one if one is not None and math.isfinite(one) else None for one in logprobs)
        samples.append(
            Sample(tuple(prompt), tuple(choice.token_ids), clean, label, number, request, choice.index)
        )
    return samples


def version_of(label: str) -> int | None:
    """The store's number of a label (`v7-1a2b3c4d`); 0 for a base model; None: neither."""
    if label.startswith("base-"):
        return 0
    found = _LABEL.fullmatch(label)
    return int(found[1]) if found else None


def groups(prompts: Sequence[T], largest: int) -> list[tuple[T, int]]:
    """Equal prompts that follow each other, at most `largest` together, in order."""
    found: list[tuple[T, int]] = []
    for prompt in prompts:
        if found and found[-1][0] == prompt and found[-1][1] < largest:
            found[-1] = (prompt, found[-1][1] + 1)
        else:
            found.append((prompt, 1))
    return found


class Share:
    """Counts out a share: of any n in a row, n times the share are taken, to within one."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._owed = 0.0

    def due(self) -> bool:
        """Whether the next one is to be taken."""
        self._owed += self._share
        return self._owed >= 1.0 - 1e-9

    def took(self) -> None:
        """It was."""
        self._owed -= 1.0
