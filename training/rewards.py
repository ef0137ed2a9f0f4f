"""Reward functions for GRPO: some built in, others by import path. Pure.

A reward function takes TRL's keyword arguments (`completions`, `prompts`, and every further column of the
records) and returns one number for each completion. Completions are texts, or lists of messages.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence

Completion = str | list[dict[str, str]]
Reward = Callable[..., Sequence[float | None]]
_LAST_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class RewardError(ValueError):
    """A reward function cannot be found; the message says which are built in."""


def text_of(completion: Completion) -> str:
    """What was said, whichever form it has."""
    return completion if isinstance(completion, str) else "".join(part["content"] for part in completion)


def exact_answer(completions: Sequence[Completion], answer: Sequence[str], **_: object) -> list[float]:
    """1 if the completion is the record's `answer`, apart from white space and case."""
    said = [text_of(each).strip().casefold() for each in completions]
    return [float(one == wanted.strip().casefold()) for one, wanted in zip(said, answer, strict=True)]


def last_number(completions: Sequence[Completion], answer: Sequence[object], **_: object) -> list[float]:
    """1 if the last number in the completion is the last number in the record's `answer` (as in GSM8K)."""
    return [
        float(_number(text_of(each)) is not None and _number(text_of(each)) == _number(str(wanted)))
        for each, wanted in zip(completions, answer, strict=True)
    ]


def _number(text: str) -> float | None:
    found = _LAST_NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def lower_case(completions: Sequence[Completion], **_: object) -> list[float]:
    """The share of letters that are lower-case; a signal that even a tiny model learns."""
    return [_share(text_of(each), str.islower) for each in completions]


def ascii_letters(completions: Sequence[Completion], **_: object) -> list[float]:
    """The share of characters that are ASCII letters or spaces."""
    return [
        sum(one == " " or (one.isascii() and one.isalpha()) for one in text) / max(len(text), 1)
        for text in map(text_of, completions)
    ]


def user_rating(
    completions: Sequence[Completion], user_rating: Sequence[float | None] | None = None, **_: object
) -> list[float | None]:
    """What users said of an answer (`POST /feedback`), from -1 to 1; None for answers nobody rated."""
    return list(user_rating) if user_rating is not None else [None] * len(completions)


def _share(text: str, holds: Callable[[str], bool]) -> float:
    letters = [one for one in text if one.isalpha()]
    return sum(map(holds, letters)) / len(letters) if letters else 0.0


BUILTIN: Mapping[str, Reward] = {
    "exact_answer": exact_answer,
    "last_number": last_number,
    "lower_case": lower_case,
    "ascii_letters": ascii_letters,
    "user_rating": user_rating,
}


def reward_function(name: str) -> Reward:
    """A built-in one by its name, or `package.module:function`. Raises RewardError."""
    if name in BUILTIN:
        return BUILTIN[name]
    module, separator, function = name.partition(":")
    if not separator:
        known = ", ".join(BUILTIN)
        raise RewardError(
            f"grpo.rewards: {name} is not built in ({known}); others as package.module:function"
        )
    try:
        found: Reward = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise RewardError(f"grpo.rewards: {name} cannot be imported: {error}") from error
    if not callable(found):
        raise RewardError(f"grpo.rewards: {name} is no function")
    return found
