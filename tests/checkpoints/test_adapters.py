from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.store.store import Store
from checkpoints.verdict import Code, Swap
from checkpoints.verify import verify_folder
from tests.checkpoints.models import random_tensor, safetensors, write_adapter, write_model

A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
B = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"


def test_an_adapter_over_full_weights_is_swapped_as_an_adapter(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "m"), store, Request("run", 1))
    verdict = verify_folder(write_adapter(tmp_path / "a"), served=store.served(1))
    assert not verdict.refused
    assert verdict.swap is Swap.ADAPTER


@pytest.mark.parametrize(
    ("shapes", "code"),
    [
        ({A: (4, 16)}, Code.TENSOR_MISSING),
        ({A: (8, 16), B: (16, 8)}, Code.SHAPE),
        ({A: (4, 16), B: (16, 4), "model.norm.weight": (16,)}, Code.TENSOR_UNKNOWN),
    ],
)
def test_a_broken_adapter_is_refused(shapes: dict[str, tuple[int, ...]], code: Code, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    tensors = {name: ("BF16", shape, random_tensor(shape, 1)) for name, shape in shapes.items()}
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))
    assert verify_folder(folder).codes() == {code}


def test_a_fresh_adapter_whose_second_half_is_zero_is_right(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    tensors = {A: ("BF16", (4, 16), random_tensor((4, 16), 1)), B: ("BF16", (16, 4), bytes(128))}
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))
    assert not verify_folder(folder).refused


def test_an_adapter_as_a_pickle_is_refused(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(b"\x80\x02.")
    assert verify_folder(folder).codes() == {Code.PICKLE}


def test_full_weights_over_a_served_adapter_need_a_restart(store: Store, tmp_path: Path) -> None:
    publish(write_adapter(tmp_path / "a"), store, Request("run", 1))
    verdict = verify_folder(write_model(tmp_path / "m"), served=store.served(1))
    assert Code.KIND in verdict.codes()
    assert verdict.swap is Swap.RESTART
