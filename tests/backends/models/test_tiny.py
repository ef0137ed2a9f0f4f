"""The tiny random model: what it promises to those who build on it."""

from __future__ import annotations

import struct
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from backends.models.alphabet import SPECIAL, VOCABULARY, is_printable
from backends.models.tiny import CONFIG, write_tiny_llama


def header(folder: Path) -> dict[str, Any]:
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert (8 + length) % 8 == 0
    decoded: dict[str, Any] = msgspec.json.decode(data[8 : 8 + length])
    return decoded | {"size": len(data) - 8 - length}


def test_equal_seeds_are_equal_weights_and_others_are_not(tmp_path: Path) -> None:
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        write_tiny_llama(tmp_path / name, seed=seed)
        digests.append(sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest())

    assert digests[0] == digests[1] != digests[2]


def test_the_weights_file_is_whole_and_small(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path)
    described = header(tmp_path)
    size = described.pop("size")
    described.pop("__metadata__")
    spans = sorted(tuple(tensor["data_offsets"]) for tensor in described.values())

    assert spans[0][0] == 0
    assert spans[-1][1] == size < 8_000_000
    assert all(end == start for (_, end), (start, _) in pairwise(spans))


def test_the_head_is_explicit_so_that_it_can_be_swapped_in_place(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path)

    assert CONFIG["tie_word_embeddings"] is False
    assert header(tmp_path)["lm_head.weight"]["shape"] == [len(VOCABULARY), CONFIG["hidden_size"]]


def test_every_byte_and_every_special_token_has_an_id_of_its_own() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 256 + len(SPECIAL)
    assert sum(is_printable(token) for token in VOCABULARY) == 95
    assert not any(is_printable(token) for token in SPECIAL)
