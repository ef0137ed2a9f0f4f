"""The oracle's models and its last line, without engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.verify import verify_folder
from tests.oracle.__main__ import Tally
from tests.oracle.models import LLAMA, MODELS, QWEN3_MOE, Model, shapes, write_model

SMALL = {"hidden_size": 32, "intermediate_size": 16, "head_dim": 4, "moe_intermediate_size": 8}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_is_a_whole_checkpoint(tmp_path: Path, model: Model) -> None:
    small = Model(model.name, {**model.config, **SMALL}, untied=model.untied)

    assert not verify_folder(small.write(tmp_path / "a", seed=1)).refused


def test_equal_seeds_give_equal_weights_and_others_do_not(tmp_path: Path) -> None:
    small = {**LLAMA, **SMALL}
    first, again, other = (
        (write_model(tmp_path / name, small, seed) / "model.safetensors").read_bytes()
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )

    assert first == again
    assert first != other


def test_a_mixture_has_a_gate_and_every_expert_in_every_layer() -> None:
    found = shapes(QWEN3_MOE)

    assert sum(".experts." in name for name in found) == 2 * 8 * 3
    assert sum(name.endswith("mlp.gate.weight") for name in found) == 2
    assert not any(name.endswith("mlp.up_proj.weight") for name in found)


def test_the_last_line_counts_models_once_and_swaps_each_time() -> None:
    tally = Tally({"llama", "gemma2"}, qualified=3, restarted=1, equal=4)

    assert tally.last_line() == ("architectures=2 qualified_in_place=3 restarted=1 equal_to_cold=4 wrong=0")
