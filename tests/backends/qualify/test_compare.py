"""Comparing answers: bit for bit, and where not, by how much."""

from __future__ import annotations

import math

import pytest

from backends.qualify.compare import Heard, compare, compare_batches, token_of
from checkpoints.probe.engine import Place


def text(*logprobs: float, tokens: tuple[int, ...] = (1, 2, 3)) -> tuple[Place, ...]:
    return tuple(
        Place(value, {token: value, 99: value - 5.0}) for value, token in zip(logprobs, tokens, strict=False)
    )


def heard(
    *texts: tuple[Place, ...], scored: tuple[Place, ...] | None = None, together: tuple[Place, ...] = ()
) -> Heard:
    return Heard(texts, texts, () if scored is None else (scored,), (together,) if together else ())


def test_equal_answers_are_equal_bit_for_bit() -> None:
    found = compare(heard(text(-1.0, -2.0)), heard(text(-1.0, -2.0)))

    assert found.equal
    assert (found.texts, found.of, found.max) == (0, 2, 0.0)


def test_the_smallest_difference_is_one() -> None:
    found = compare(heard(text(-1.0, -2.0)), heard(text(-1.0, math.nextafter(-2.0, 0))))

    assert not found.equal
    assert 0 < found.max < 1e-12


def test_after_texts_have_parted_nothing_more_is_compared() -> None:
    here = heard(text(-1.0, -2.0, -3.0))
    there = heard(text(-1.0, -2.5, -90.0, tokens=(1, 7, 3)))

    found = compare(here, there)

    assert found.texts == 2
    assert found.max == pytest.approx(5.5), "token 2 is below all that the other lists where they part"


def test_choices_that_the_other_does_not_even_list_count_with_what_is_known_of_them() -> None:
    here, there = (Place(-0.1, {1: -0.1, 2: -3.0}),), (Place(-0.2, {8: -0.2, 9: -4.0}),)

    found = compare(heard(here), heard(there))

    assert found.max == pytest.approx(3.9)
    assert found.mean == pytest.approx((3.9 + 2.8) / 2)


def test_a_batch_is_compared_apart_from_what_was_asked_one_by_one() -> None:
    here, there = heard(text(-1.0), together=text(-1.0)), heard(text(-1.0), together=text(-1.25))

    assert compare(here, there).equal
    assert compare_batches(here, there).max == 5.25 - 5.0


def test_prompts_are_compared_throughout() -> None:
    here = heard(scored=text(-1.0, -2.0, -3.0))
    there = heard(scored=text(-1.0, -2.5, -9.0, tokens=(1, 7, 3)))

    assert compare(here, there).max == 6.0


def test_a_number_that_is_none_is_said() -> None:
    assert not compare(heard(text(math.nan)), heard(text(-1.0))).finite


def test_engines_that_answered_other_questions_are_not_compared() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(heard(text(-1.0)), heard(text(-1.0), text(-1.0)))


def test_of_equally_likely_tokens_the_lowest_is_meant() -> None:
    assert token_of(Place(-1.0, {5: -1.0, 3: -1.0, 9: -4.0})) == 3
