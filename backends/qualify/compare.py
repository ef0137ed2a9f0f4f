"""Are two engines' answers the same? Bit for bit, and if not, by how much. Pure.

Greedy texts are compared place by place until they part: what follows differs because of that, and says
nothing more. Log-probabilities of prompts can be compared throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from checkpoints.probe.engine import Place

Text = tuple[Place, ...]


class Heard(msgspec.Struct, frozen=True):
    """What one engine answered to all questions, in order."""

    first: tuple[Text, ...]
    """Greedy texts, asked of an empty prefix cache."""
    again: tuple[Text, ...]
    """The same, asked once more: the prefixes come from the cache."""
    scored: tuple[Text, ...]
    """Log-probabilities of whole prompts, which never come from the cache."""


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Between two `Heard`. Log-probabilities are natural logarithms."""

    equal: bool
    """Every number is the same, bit for bit."""
    texts: int
    """Greedy texts with another token in them."""
    of: int
    mean: float
    """Of |Δlogp| over all numbers that can be compared."""
    max: float
    finite: bool = True
    """No number is missing or not a number."""


def compare(one: Heard, other: Heard) -> Difference:
    """Raises ValueError where they do not answer the same questions."""
    pairs = [
        (left, right, greedy)
        for lefts, rights, greedy in (
            (one.first, other.first, True),
            (one.again, other.again, True),
            (one.scored, other.scored, False),
        )
        for left, right in zip(lefts, rights, strict=True)
    ]
    deltas: list[float] = []
    parted = 0
    for left, right, greedy in pairs:
        deltas += _deltas(left, right, until_parted=greedy)
        parted += greedy and [token_of(place) for place in left] != [token_of(place) for place in right]
    return Difference(
        equal=one == other,
        texts=parted,
        of=len(one.first) + len(one.again),
        mean=math.fsum(deltas) / len(deltas) if deltas else 0.0,
        max=max(deltas, default=0.0),
        finite=all(_finite(text) for left, right, _ in pairs for text in (left, right)),
    )


def token_of(place: Place) -> int | None:
    """The token that was chosen at a place of a greedy text: the likeliest, the lowest id of equals."""
    return min(place.top, key=lambda token: (-place.top[token], token), default=None)


def _deltas(left: Sequence[Place], right: Sequence[Place], *, until_parted: bool) -> Iterator[float]:
    for here, there in zip(left, right, strict=False):
        for token in here.top.keys() & there.top.keys():
            yield _delta(here.top[token], there.top[token])
        same = token_of(here) == token_of(there)
        if same or not until_parted:
            yield _delta(here.logprob, there.logprob)
        elif until_parted:
            return


def _delta(one: float, other: float) -> float:
    """|Δ|, 0 for two of the same infinity."""
    delta = 0.0 if one == other else abs(one - other)
    return delta if math.isfinite(delta) else 0.0


def _finite(text: Text) -> bool:
    return bool(text) and all(math.isfinite(place.logprob) for place in text)
