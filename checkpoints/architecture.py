"""Which tensors a model of a known architecture has, with their shapes, and which of them engines fuse.

Derived from config.json for the Llama family (Llama, Mistral, Qwen2, Qwen3, Gemma2, Phi3-style fused
names are not among them). For any other architecture only the number of layers and their evenness
are known. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FUSED = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("query", "key", "value"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
)
"""Parts that engines keep as one tensor: with one missing, that part of the memory is never written."""

IGNORED = re.compile(r"\.rotary_emb\.inv_freq$|\.attn\.masked_bias$|\.attn\.bias$")
"""Buffers that some trainers save and every engine skips."""

LAYER = re.compile(r"^(?P<stem>.*?\.)(?P<number>\d+)\.(?P<rest>.+)$")

_LLAMA_LIKE = {
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM",
}  # fmt: skip
_QKV_BIAS = {"Qwen2ForCausalLM"}
_QK_NORM = {"Qwen3ForCausalLM"}
_FOUR_NORMS = {"Gemma2ForCausalLM"}
_TIED_BY_DEFAULT = {"Gemma2ForCausalLM", "GemmaForCausalLM"}

Shape = tuple[int, ...]
Config = Mapping[str, object]


def architecture(config: Config) -> str | None:
    """The first of `architectures`."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def is_tied(config: Config) -> bool:
    """The output head is the input embedding."""
    value = config.get("tie_word_embeddings")
    return value if isinstance(value, bool) else architecture(config) in _TIED_BY_DEFAULT


def number(config: Config, key: str) -> int | None:
    """A positive whole number of the configuration."""
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def zero_is_normal(name: str, config: Config) -> bool:
    """A tensor of only zeros may be right: biases, norms counted from one (Gemma), a fresh LoRA's B."""
    if name.endswith("bias") or "lora_B" in name or "lora_embedding_B" in name:
        return True
    return "norm" in name and (architecture(config) or "").startswith("Gemma")


def expected(config: Config) -> dict[str, Shape] | None:
    """Name → shape of every tensor, or None where the architecture or a size is not known."""
    arch = architecture(config)
    if arch not in _LLAMA_LIKE:
        return None
    sizes = [number(config, key) for key in (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size",
    )]  # fmt: skip
    if any(size is None for size in sizes):
        return None
    hidden, inner, heads, layers, vocab = (size or 0 for size in sizes)
    kv_heads = number(config, "num_key_value_heads") or heads
    head_dim = number(config, "head_dim") or (256 if arch in _FOUR_NORMS else hidden // heads)
    layer = _layer(config, arch, hidden, inner, heads * head_dim, kv_heads * head_dim, head_dim)
    tensors: dict[str, Shape] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for index in range(layers):
        tensors.update({f"model.layers.{index}.{name}": shape for name, shape in layer.items()})
    if not is_tied(config):
        tensors["lm_head.weight"] = (vocab, hidden)
    return tensors


def _layer(
    config: Config, arch: str, hidden: int, inner: int, q: int, kv: int, head_dim: int
) -> dict[str, Shape]:
    layer: dict[str, Shape] = {
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if arch in _FOUR_NORMS:
        layer["pre_feedforward_layernorm.weight"] = (hidden,)
        layer["post_feedforward_layernorm.weight"] = (hidden,)
    if arch in _QK_NORM:
        layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = (head_dim,)
    if arch in _QKV_BIAS or config.get("attention_bias") is True:
        layer.update(
            {f"self_attn.{part}_proj.bias": (size,) for part, size in (("q", q), ("k", kv), ("v", kv))}
        )
    if arch not in _QKV_BIAS and config.get("attention_bias") is True:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config.get("mlp_bias") is True:
        layer.update({f"mlp.{part}_proj.bias": (inner,) for part in ("gate", "up")})
        layer["mlp.down_proj.bias"] = (hidden,)
    return layer


def fused_part(name: str) -> tuple[str, ...] | None:
    """The whole group of names that an engine fuses `name` with, itself included."""
    parts = name.split(".")
    for group in FUSED:
        for index, part in enumerate(parts):
            if part in group:
                return tuple(".".join([*parts[:index], other, *parts[index + 1 :]]) for other in group)
    return None


def uneven_layers(names: Iterable[str]) -> list[str]:
    """Names that most layers of a stack have and some lack, written as the missing tensors' names."""
    stacks: dict[str, dict[str, set[int]]] = {}
    for name in names:
        if match := LAYER.match(name):
            stacks.setdefault(match["stem"], {}).setdefault(match["rest"], set()).add(int(match["number"]))
    missing: list[str] = []
    for stem, parts in stacks.items():
        layers = set().union(*parts.values())
        for rest, having in parts.items():
            if len(layers) / 2 < len(having) < len(layers):
                missing += [f"{stem}{index}.{rest}" for index in sorted(layers - having)]
    return missing


def layer_count(names: Iterable[str]) -> int | None:
    """Layers of the longest stack: its highest number plus one."""
    numbers = [int(match["number"]) for match in map(LAYER.match, names) if match]
    return max(numbers) + 1 if numbers else None
