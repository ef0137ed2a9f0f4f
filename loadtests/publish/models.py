"""Checkpoints of any size, written quickly: a Llama's layout filled with a repeated random block."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import msgspec

_BLOCK = 1024 * 1024


def llama_shapes(hidden: int, inner: int, layers: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Name → shape of an untied Llama with as many KV heads as heads."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name in "qkvo":
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = (hidden, hidden)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = shapes[f"{prefix}.mlp.up_proj.weight"] = (inner, hidden)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (hidden, inner)
        shapes[f"{prefix}.input_layernorm.weight"] = (hidden,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (vocabulary, hidden)
    return shapes


def write_llama(
    folder: Path,
    *,
    hidden: int,
    inner: int,
    layers: int,
    vocabulary: int = 1024,
    shards: int = 1,
    seed: int = 0,
) -> int:
    """Write config and bfloat16 weights; returns the bytes of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    shapes = llama_shapes(hidden, inner, layers, vocabulary)
    names = list(shapes)
    block = _finite(seed)
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[number::shards]
        total += _write(folder / file, {name: shapes[name] for name in mine}, block, seed)
        weight_map.update(dict.fromkeys(mine, file))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_bytes(msgspec.json.encode(index))
    return total


def _finite(seed: int) -> bytes:
    """Random bytes that are no NaN or infinity read as bfloat16."""
    data = random.Random(seed).randbytes(_BLOCK) if seed else os.urandom(_BLOCK)
    return data.replace(b"\x7f", b"\x3f").replace(b"\xff", b"\xbf")


def _write(path: Path, shapes: dict[str, tuple[int, ...]], block: bytes, seed: int) -> int:
    table, offset = {}, 0
    for name, shape in shapes.items():
        size = 2
        for extent in shape:
            size *= extent
        table[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    header = msgspec.json.encode(table)
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        left, turn = offset, seed
        while left:
            start = (turn * 4099 * 2) % _BLOCK
            piece = (block[start:] + block[:start])[:left]
            file.write(piece)
            left -= len(piece)
            turn += 1
    return offset
