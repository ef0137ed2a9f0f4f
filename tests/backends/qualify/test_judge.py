"""Verdicts: right only where the trial could have shown a fault and did not."""

from __future__ import annotations

import pytest

from backends.qualify.compare import Difference
from backends.qualify.judge import Verdict, checked, checked_batches, judge, passes

EQUAL = Difference(equal=True, texts=0, of=10, mean=0.0, max=0.0)
MOVED = Difference(equal=False, texts=10, of=10, mean=3.0, max=12.0)


def apart(mean: float, largest: float, texts: int = 0) -> Difference:
    return Difference(equal=False, texts=texts, of=10, mean=mean, max=largest)


def verdict(*differences: Difference, moved: Difference = MOVED, floor: Difference | None = None) -> Verdict:
    named = [(f"check {number}", difference) for number, difference in enumerate(differences)]
    return judge(checked(named, floor), moved, floor)[0]


def test_equal_bit_for_bit_is_qualified_without_a_floor() -> None:
    assert verdict(EQUAL, EQUAL) is Verdict.QUALIFIED


@pytest.mark.fault("S13")
@pytest.mark.parametrize(
    "wrong", [apart(0.01, 0.17), apart(0.5, 2.99, texts=2)], ids=["experts", "tied head"]
)
def test_one_comparison_that_differs_is_wrong_where_cold_starts_are_equal(wrong: Difference) -> None:
    assert verdict(EQUAL, EQUAL, wrong, floor=EQUAL) is Verdict.WRONG
    assert verdict(EQUAL, EQUAL, wrong, floor=None) is Verdict.WRONG


def test_a_difference_no_larger_than_between_cold_starts_is_qualified() -> None:
    assert verdict(EQUAL, apart(0.004, 0.03), floor=apart(0.003, 0.02)) is Verdict.QUALIFIED


@pytest.mark.parametrize("wrong", [apart(0.003, 0.05), apart(0.007, 0.03)], ids=["once far", "everywhere"])
def test_a_difference_beyond_the_noise_of_cold_starts_is_wrong(wrong: Difference) -> None:
    assert not passes(wrong, apart(0.003, 0.02))


@pytest.mark.parametrize(
    "moved",
    [EQUAL, apart(0.05, 0.4, texts=3)],
    ids=["not at all", "a little"],
)
def test_weights_that_hardly_change_an_answer_prove_nothing(moved: Difference) -> None:
    assert verdict(EQUAL, moved=moved) is Verdict.INCONCLUSIVE


def test_weights_that_move_every_number_prove_enough_though_texts_stay() -> None:
    assert verdict(EQUAL, moved=apart(2.11, 9.0, texts=0)) is Verdict.QUALIFIED


def test_noisy_cold_starts_need_weights_that_move_more() -> None:
    assert verdict(EQUAL, moved=apart(0.5, 2.0, 5), floor=apart(0.1, 0.4)) is Verdict.INCONCLUSIVE


def test_answers_without_numbers_prove_nothing() -> None:
    nothing = Difference(equal=True, texts=0, of=10, mean=0.0, max=0.0, finite=False)

    assert verdict(EQUAL, nothing) is Verdict.INCONCLUSIVE
    assert verdict(EQUAL, moved=nothing) is Verdict.INCONCLUSIVE


def test_a_batch_may_differ_as_long_as_it_is_nowhere_near_the_other_weights() -> None:
    small, large = checked_batches([("small", apart(0.02, 0.4, 3)), ("large", apart(0.4, 0.6))], MOVED)

    assert small.passed
    assert not large.passed
    assert judge((*checked([("one by one", EQUAL)], None), large), MOVED, None)[0] is Verdict.WRONG
