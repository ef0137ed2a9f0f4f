"""The perturbed copy: every tensor differs in most elements, keeps its size, and nothing else changes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from backends.qualify.perturb import moved, turned, write_perturbed
from checkpoints.contents import read_contents
from checkpoints.errors import CheckpointError
from checkpoints.tensors import read_header
from checkpoints.verify import verify_folder
from tests.checkpoints.models import CONFIG, bf16, safetensors, weights, write_model


def tensors(folder: Path) -> dict[str, bytes]:
    found = {}
    for name in read_contents(folder).headers:
        raw = (folder / name).read_bytes()
        found |= {t.name: raw[t.start : t.end] for t in read_header(folder / name).tensors}
    return found


@pytest.mark.parametrize("shards", [1, 3])
def test_every_tensor_differs_and_the_checkpoint_is_whole(tmp_path: Path, shards: int) -> None:
    folder = write_model(tmp_path / "a", shards=shards)
    write_perturbed(folder, tmp_path / "b")

    before, after = tensors(folder), tensors(tmp_path / "b")

    assert not verify_folder(tmp_path / "b").refused
    assert before.keys() == after.keys()
    for name, old in before.items():
        same = sum(old[at : at + 2] == after[name][at : at + 2] for at in range(0, len(old), 2))
        assert same < len(old) / 2 * 0.1, name
    assert (tmp_path / "b" / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_constant_matrices_and_vectors_of_ones_differ_too(tmp_path: Path) -> None:
    made = weights(CONFIG)
    ones, zeros = "model.norm.weight", "model.layers.0.mlp.up_proj.weight"
    made[ones] = ("BF16", (16,), bf16(1.0) * 16)
    made[zeros] = ("BF16", (32, 16), bytes(2 * 32 * 16))
    folder = write_model(tmp_path / "a", made)
    write_perturbed(folder, tmp_path / "b")

    after = tensors(tmp_path / "b")

    for name in (ones, zeros):
        old, new = made[name][2], after[name]
        assert all(old[at : at + 2] != new[at : at + 2] for at in range(0, len(old), 2)), name


def test_large_tensors_are_turned_piece_by_piece(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4
    tensor = {"w": ("BF16", (16, 32), data)}
    folder = write_model(tmp_path / "a", tensor)
    write_perturbed(folder, tmp_path / "b", chunk_bytes=48)

    assert tensors(tmp_path / "b")["w"] == turned(data, "BF16")


def test_indices_and_shapes_of_quantised_weights_stay(tmp_path: Path) -> None:
    numbers = bytes(range(64))
    kept = {"l.g_idx": ("I32", (16,), numbers), "l.weight_shape": ("I64", (8,), numbers)}
    changed = {"l.qweight": ("I32", (4, 4), numbers)}
    folder = write_model(tmp_path / "a", {**kept, **changed})
    write_perturbed(folder, tmp_path / "b")

    after = tensors(tmp_path / "b")

    assert {name: after[name] for name in kept} == {name: data for name, (_, _, data) in kept.items()}
    assert after["l.qweight"] != numbers


@pytest.mark.parametrize(("dtype", "code"), [("F16", "e"), ("F32", "f"), ("F64", "d")])
def test_numbers_keep_their_sign_and_size(dtype: str, code: str) -> None:
    before = [1.0, -2.0, 0.5, 0.0, 1000.0, math.inf]
    after = struct.unpack(f"<6{code}", moved(struct.pack(f"<6{code}", *before), dtype))

    assert after == (0.75, -2.5, 0.375, 0.0625, 750.0, 1.0)


def test_a_bfloat16_is_moved_like_the_others() -> None:
    assert moved(bf16(1.0) + bf16(-2.0), "BF16") == bf16(0.75) + bf16(-2.5)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "config.json").write_text("{}")

    with pytest.raises(CheckpointError, match="no weights"):
        write_perturbed(folder, tmp_path / "b")


def test_what_is_not_a_checkpoint_is_not_copied(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a")
    (folder / "optimizer.pt").write_bytes(safetensors(weights(CONFIG)))
    write_perturbed(folder, tmp_path / "b")

    assert not (tmp_path / "b" / "optimizer.pt").exists()
