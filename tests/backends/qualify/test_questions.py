"""What the oracle asks: the same each time, within the vocabulary and the context."""

from __future__ import annotations

import pytest

from backends.qualify.questions import ANSWER_TOKENS, questions_for, vocabulary_of


@pytest.mark.parametrize(("vocabulary", "context"), [(259, 2048), (128_000, 131_072), (40, 32), (2, 20)])
def test_prompts_fit_and_are_the_same_each_time(vocabulary: int, context: int) -> None:
    asked = questions_for(vocabulary, context)

    assert asked == questions_for(vocabulary, context)
    for prompt in (*asked.prompts, *asked.scored, *asked.together):
        assert 1 <= len(prompt) <= context - ANSWER_TOKENS
        assert all(0 <= token < vocabulary for token in prompt)


def test_one_prompt_goes_on_where_another_ends_so_that_its_prefix_is_warm() -> None:
    first, second, *_ = questions_for(1000, 2048).prompts

    assert len(first) > 256, "whole blocks of the prefix cache"
    assert second[: len(first)] == first
    assert len(second) > len(first)


def test_the_longest_prompt_is_asked_first() -> None:
    lengths = [len(prompt) for prompt in questions_for(1000, 2048).prompts]

    assert lengths[0] > 64, "an engine with AMX dies of a first request of few tokens"
    assert lengths[-1] < 8


def test_composite_models_have_their_vocabulary_inside() -> None:
    assert vocabulary_of({"text_config": {"vocab_size": 7}, "vocab_size": 9}) == 7
    assert vocabulary_of({"vocab_size": 9}) == 9
