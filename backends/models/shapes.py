"""Checks a model's `config.json` against what an engine is asked to do with it. Pure.

An engine that cannot divide a model among its devices exits after half a minute with a stack trace;
these checks say so before one is started.
"""

from __future__ import annotations

from collections.abc import Mapping

LARGEST_SUGGESTION = 64
"""Sizes named in a message go up to here."""


def tensor_parallel_problem(config: Mapping[str, object], size: int) -> str | None:
    """Why vLLM cannot split this model among `size` devices, or None.

    `config` is the content of `config.json`; composite models have their text part under `text_config`.
    vLLM's rules (`ModelConfig.verify_with_parallel_config`, `LlamaAttention`): attention heads are divided
    evenly; KV heads are divided evenly, or, when there are fewer than devices, replicated evenly; the
    feed-forward width is divided evenly. The vocabulary is padded, so it never matters.
    """
    if size == 1:
        return None
    text = config.get("text_config")
    model = text if isinstance(text, Mapping) else config
    heads = _integer(model, "num_attention_heads")
    if heads is None:
        return None
    kv_heads = _integer(model, "num_key_value_heads") or heads
    width = _integer(model, "intermediate_size")
    if _divides(size, heads, kv_heads, width):
        return None
    sizes = [
        str(n) for n in range(1, min(heads, LARGEST_SUGGESTION) + 1) if _divides(n, heads, kv_heads, width)
    ]
    layers = f", its layers are {width} wide" if width else ""
    return (
        f"tensor_parallel_size {size} does not divide this model: it has {heads} attention heads and "
        f"{kv_heads} KV heads{layers}. Sizes that work: {', '.join(sizes)}"
    )


def context_length_problem(config: Mapping[str, object], max_model_len: int | None) -> str | None:
    """Why the model cannot have a context that long, or None."""
    text = config.get("text_config")
    limit = _integer(text if isinstance(text, Mapping) else config, "max_position_embeddings")
    if max_model_len is None or limit is None or max_model_len <= limit or config.get("rope_scaling"):
        return None
    return f"max_model_len {max_model_len} is more than the model's own limit of {limit} tokens"


def _divides(size: int, heads: int, kv_heads: int, width: int | None) -> bool:
    kv_heads_fit = kv_heads % size == 0 if kv_heads >= size else size % kv_heads == 0
    return heads % size == 0 and kv_heads_fit and (width is None or width % size == 0)


def _integer(config: Mapping[str, object], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else None
