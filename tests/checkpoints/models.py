"""Small checkpoints made by code: a Llama of two layers in the Hugging Face layout, written byte by byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from checkpoints.architecture import expected
from checkpoints.tensors import DTYPE_BITS, build_header

Weights = dict[str, tuple[str, tuple[int, ...], bytes]]

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "transformers_version": "5.0.0",
}
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {f"t{index}": index for index in range(60)}},
    "added_tokens": [],
}
TOKENIZER_CONFIG = {"bos_token": "t0", "chat_template": "{{ messages }}"}


def bf16(value: float) -> bytes:
    """The two bytes of a number cut to bfloat16."""
    return struct.pack("<f", value)[2:]


def random_tensor(shape: tuple[int, ...], seed: int, dtype: str = "BF16") -> bytes:
    """Small numbers, never all zero."""
    count = 1
    for size in shape:
        count *= size
    source = random.Random(seed)
    numbers = [source.uniform(0.01, 0.1) * source.choice((-1, 1)) for _ in range(count)]
    if dtype == "F32":
        return struct.pack(f"<{count}f", *numbers)
    return b"".join(map(bf16, numbers))


def weights(config: Mapping[str, object] = CONFIG, seed: int = 0, dtype: str = "BF16") -> Weights:
    """All tensors of the configuration."""
    shapes = expected(config)
    assert shapes is not None
    return {
        name: (dtype, shape, random_tensor(shape, seed * 1000 + index, dtype))
        for index, (name, shape) in enumerate(shapes.items())
    }


def safetensors(tensors: Weights, metadata: dict[str, str] | None = None) -> bytes:
    """A file's bytes."""
    table = [(name, dtype, shape, len(data)) for name, (dtype, shape, data) in tensors.items()]
    return build_header(table, metadata or {"format": "pt"}) + b"".join(
        data for _, _, data in tensors.values()
    )


def write_json(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.encode(value))


def write_model(
    folder: Path,
    tensors: Weights | None = None,
    config: Mapping[str, object] = CONFIG,
    *,
    seed: int = 0,
    shards: int = 1,
) -> Path:
    """A complete checkpoint; more than one shard comes with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = weights(config, seed) if tensors is None else tensors
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", TOKENIZER)
    write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIG)
    write_json(folder / "generation_config.json", {"temperature": 0.7})
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors))
        return folder
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        mine = {name: tensors[name] for name in names[number::shards]}
        (folder / file).write_bytes(safetensors(mine))
        weight_map.update(dict.fromkeys(mine, file))
    write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": weight_map}
    )
    return folder


def element_bytes(dtype: str) -> int:
    return DTYPE_BITS[dtype] // 8


def write_adapter(folder: Path, *, seed: int = 0, rank: int = 4) -> Path:
    """A LoRA adapter of one matrix."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = {f"{prefix}.lora_A.weight": (rank, 16), f"{prefix}.lora_B.weight": (16, rank)}
    tensors: Weights = {name: ("BF16", shape, random_tensor(shape, seed)) for name, shape in shapes.items()}
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))
    write_json(folder / "adapter_config.json", {"peft_type": "LORA", "r": rank, "lora_alpha": 8})
    return folder
