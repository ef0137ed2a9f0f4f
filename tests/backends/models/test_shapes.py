"""Which models an engine can divide, said before one is started."""

from __future__ import annotations

import pytest

from backends.models.shapes import context_length_problem, tensor_parallel_problem
from backends.models.tiny import CONFIG as TINY

SMOLLM2 = {"num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536}


def test_a_size_that_heads_do_not_allow_is_refused_with_those_that_work() -> None:
    assert tensor_parallel_problem(SMOLLM2, 2) == (
        "tensor_parallel_size 2 does not divide this model: it has 9 attention heads and 3 KV heads, "
        "its layers are 1536 wide. Sizes that work: 1, 3"
    )
    assert tensor_parallel_problem(SMOLLM2, 3) is None


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_tiny_llama_can_be_divided_where_kv_heads_are_fewer_they_are_replicated(size: int) -> None:
    assert tensor_parallel_problem(TINY, size) is None


def test_kv_heads_that_can_be_neither_divided_nor_replicated_are_refused() -> None:
    problem = tensor_parallel_problem({"num_attention_heads": 12, "num_key_value_heads": 3}, 2)

    assert problem is not None
    assert "Sizes that work: 1, 3, 6, 12" in problem


def test_a_model_without_grouped_heads_has_as_many_kv_heads() -> None:
    assert tensor_parallel_problem({"num_attention_heads": 12}, 5) is not None
    assert tensor_parallel_problem({"num_attention_heads": 12}, 6) is None


def test_the_text_part_of_a_composite_model_decides() -> None:
    assert tensor_parallel_problem({"text_config": SMOLLM2, "num_attention_heads": 8}, 2) is not None


def test_a_model_that_says_nothing_about_heads_is_left_to_the_engine() -> None:
    assert tensor_parallel_problem({"model_type": "mamba"}, 8) is None


def test_a_context_longer_than_the_models_is_refused() -> None:
    assert context_length_problem({"max_position_embeddings": 2048}, 4096) == (
        "max_model_len 4096 is more than the model's own limit of 2048 tokens"
    )
    assert context_length_problem({"max_position_embeddings": 2048}, 2048) is None
    assert (
        context_length_problem({"max_position_embeddings": 2048, "rope_scaling": {"factor": 4}}, 4096) is None
    )
