"""Are two engines' answers the same? Bit for bit, and if not, by how much. Pure.

Greedy texts are compared place by place until they part: what follows differs because of that, and says
nothing more. Log-probabilities of prompts can be compared throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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
    together: tuple[Text, ...]
    """Greedy texts of several prompts in one batch: other kernels, other captured graphs."""


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
    """Of what was asked one by one. Raises ValueError where they do not answer the same questions."""
    greedy = _pairs((one.first, other.first), (one.again, other.again))
    return _difference(greedy, _pairs((one.scored, other.scored)))


def compare_batches(one: Heard, other: Heard) -> Difference:
    """Of what was asked in a batch: its numbers depend on which requests met. Raises ValueError."""
    return _difference(_pairs((one.together, other.together)), [])


Pair = tuple[Text, Text]


def _pairs(*both: tuple[tuple[Text, ...], tuple[Text, ...]]) -> list[Pair]:
    return [pair for left, right in both for pair in zip(left, right, strict=True)]


def _difference(greedy: list[Pair], scored: list[Pair]) -> Difference:
    deltas = [delta for left, right in greedy for delta in _until_parted(left, right)]
    deltas += [delta for left, right in scored for delta in _throughout(left, right)]
    return Difference(
        equal=all(left == right for left, right in greedy + scored),
        texts=sum(_tokens(left) != _tokens(right) for left, right in greedy),
        of=len(greedy),
        mean=math.fsum(deltas) / len(deltas) if deltas else 0.0,
        max=max(deltas, default=0.0),
        finite=all(_finite(text) for pair in greedy + scored for text in pair),
    )


def token_of(place: Place) -> int | None:
    """The token that was chosen at a place of a greedy text: the likeliest, the lowest id of equals."""
    return min(place.top, key=lambda token: (-place.top[token], token), default=None)


def _tokens(text: Text) -> list[int | None]:
    return [token_of(place) for place in text]


def _until_parted(left: Text, right: Text) -> Iterator[float]:
    for here, there in zip(left, right, strict=False):
        yield from _common(here, there)
        if token_of(here) != token_of(there):
            yield from (_at_least(here, there), _at_least(there, here))
            return
        yield _delta(here.logprob, there.logprob)


def _throughout(left: Text, right: Text) -> Iterator[float]:
    for here, there in zip(left, right, strict=False):
        yield from _common(here, there)
        yield _delta(here.logprob, there.logprob)


def _common(here: Place, there: Place) -> Iterator[float]:
    for token in here.top.keys() & there.top.keys():
        yield _delta(here.top[token], there.top[token])


def _at_least(here: Place, there: Place) -> float:
    """How far a choice is from the other engine's, where that does not even list it: it is below its list."""
    token = token_of(here)
    if token is None or token in there.top:
        return 0.0
    return max(0.0, here.top[token] - min(there.top.values(), default=0.0))


def _delta(one: float, other: float) -> float:
    """|Δ|, 0 for two of the same infinity."""
    delta = 0.0 if one == other else abs(one - other)
    return delta if math.isfinite(delta) else 0.0


def _finite(text: Text) -> bool:
    return bool(text) and all(math.isfinite(place.logprob) for place in text)
