"""Tiny random models of several architectures, written byte by byte: 8 heads, two layers, fixed seeds."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from backends.models.alphabet import BOS, EOS, VOCABULARY, write_tokenizer
from checkpoints.architecture import expected
from checkpoints.tensors import build_header
from checkpoints.untie import write_untied

Config = dict[str, object]
CONTEXT = 1024
HEAD_SCALE = 0.25
"""Of what makes logits: spread enough that greedy choices are far apart."""

_COMMON: Config = {
    "vocab_size": len(VOCABULARY), "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "dtype": "bfloat16", "bos_token_id": VOCABULARY.index(BOS), "eos_token_id": VOCABULARY.index(EOS),
}  # fmt: skip


def _config(architecture: str, model_type: str, **more: object) -> Config:
    return {"architectures": [architecture], "model_type": model_type, **_COMMON, **more}


LLAMA = _config("LlamaForCausalLM", "llama", attention_bias=False, mlp_bias=False)
LLAMA_TIED = {**LLAMA, "tie_word_embeddings": True}
QWEN2 = _config("Qwen2ForCausalLM", "qwen2", use_sliding_window=False)
QWEN3 = _config("Qwen3ForCausalLM", "qwen3", attention_bias=False)
GEMMA2 = _config(
    "Gemma2ForCausalLM", "gemma2", tie_word_embeddings=True, query_pre_attn_scalar=32, sliding_window=512,
    hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0,
    final_logit_softcapping=30.0,
)  # fmt: skip
QWEN3_MOE = _config(
    "Qwen3MoeForCausalLM", "qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128,
    decoder_sparse_step=1, norm_topk_prob=True, mlp_only_layers=[], attention_bias=False,
)  # fmt: skip


@dataclass(frozen=True)
class Model:
    """One that the oracle tries."""

    name: str
    config: Config
    untied: bool = False
    """Served in the form with an output head of its own, made by `checkpoints.untie`."""
    trusted: bool | None = None
    """What the engine build that is pinned here was seen to do; None: anything goes."""

    def write(self, folder: Path, seed: int) -> Path:
        """The checkpoint in `folder`, which is made."""
        if not self.untied:
            return write_model(folder, self.config, seed)
        tied = write_model(folder.with_name(folder.name + "-tied"), self.config, seed)
        write_untied(tied, folder)
        return folder


MODELS = (
    Model("llama", LLAMA, trusted=True),
    Model("llama-tied", LLAMA_TIED, trusted=False),
    Model("llama-tied-untied", LLAMA_TIED, untied=True, trusted=True),
    Model("qwen2", QWEN2),
    Model("qwen3", QWEN3),
    Model("gemma2", GEMMA2),
    Model("qwen3-moe", QWEN3_MOE),
)


def write_model(folder: Path, config: Config, seed: int) -> Path:
    """Write configuration, tokenizer and bfloat16 weights; equal seeds give equal bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))
    write_tokenizer(folder, CONTEXT)
    source = random.Random(seed)
    tensors = [(name, shape, _bytes(name, shape, config, source)) for name, shape in shapes(config).items()]
    header = build_header(
        [(name, "BF16", shape, len(data)) for name, shape, data in tensors], {"format": "pt"}
    )
    (folder / "model.safetensors").write_bytes(header + b"".join(data for _, _, data in tensors))
    return folder


def shapes(config: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Every tensor. A mixture of experts is a Qwen3 with other feed-forward parts."""
    if config["model_type"] != "qwen3_moe":
        found = expected(config)
        assert found is not None
        return found
    dense = expected({**config, "architectures": ["Qwen3ForCausalLM"]})
    assert dense is not None
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    experts = config["num_experts"]
    assert isinstance(hidden, int) and isinstance(inner, int) and isinstance(experts, int)
    found = {name: shape for name, shape in dense.items() if ".mlp." not in name}
    for layer in range(2):
        mlp = f"model.layers.{layer}.mlp"
        found[f"{mlp}.gate.weight"] = (experts, hidden)
        for expert in range(experts):
            found[f"{mlp}.experts.{expert}.gate_proj.weight"] = (inner, hidden)
            found[f"{mlp}.experts.{expert}.up_proj.weight"] = (inner, hidden)
            found[f"{mlp}.experts.{expert}.down_proj.weight"] = (hidden, inner)
    return found


def _bytes(name: str, shape: tuple[int, ...], config: Config, source: random.Random) -> bytes:
    """Numbers of a size that keeps activations alive; norms near one (Gemma: near zero, one is added)."""
    count = math.prod(shape)
    if len(shape) == 1 and "norm" in name:
        middle, scale = (0.0 if config["model_type"] == "gemma2" else 1.0), 0.1
    elif "lm_head" in name or "embed_tokens" in name:
        middle, scale = 0.0, HEAD_SCALE
    else:
        middle, scale = 0.0, 1 / math.sqrt(shape[-1])
    values = array("f", (source.gauss(middle, scale) for _ in range(count)))
    return array("H", (bits >> 16 for bits in array("I", values.tobytes()))).tobytes()
