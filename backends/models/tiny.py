"""The model `tiny-llama`: a random Llama of a few MB, made without network, torch or numpy.

For tests, tensor parallelism 2 and speed measurements: it has all the shapes of a real one and costs
next to nothing to compute. Equal seeds give equal bytes on every machine. It never ends an answer
early and writes printable ASCII, so that streams show every token. Other seeds are other weights,
which is what tests of swapping need.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from backends.models.alphabet import BOS, EOS, VOCABULARY, is_printable, write_tokenizer

SEED = 7
HIDDEN = 256
HEADS = 8
KV_HEADS = 4
HEAD_DIM = HIDDEN // HEADS
LAYERS = 2
FEED_FORWARD = 512
CONTEXT = 2048
EMBEDDING_SCALE = 0.5
WEIGHT_SCALE = 0.06
"""About 1/sqrt(HIDDEN): activations keep their size through the layers."""
HEAD_SCALE = 0.25
"""Logits spread enough that greedy choices are far apart and samples stay printable."""
ALIGNMENT = 8
"""safetensors pads its header so that the data begins at a multiple of this."""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": len(VOCABULARY),
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "bos_token_id": VOCABULARY.index(BOS),
    "eos_token_id": VOCABULARY.index(EOS),
}


def write_tiny_llama(folder: Path, *, seed: int = SEED) -> None:
    """Write config, tokenizer and weights (bfloat16, untied) in the Hugging Face layout into the folder."""
    (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(CONFIG)))
    write_tokenizer(folder, CONTEXT)
    _write_safetensors(folder / "model.safetensors", random.Random(seed))


def _tensors() -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and scale of every tensor; scale 0 stands for all ones."""
    yield "model.embed_tokens.weight", (len(VOCABULARY), HIDDEN), EMBEDDING_SCALE
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (HIDDEN,), 0
        yield f"{prefix}.self_attn.q_proj.weight", (HIDDEN, HIDDEN), WEIGHT_SCALE
        yield f"{prefix}.self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN), WEIGHT_SCALE
        yield f"{prefix}.self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN), WEIGHT_SCALE
        yield f"{prefix}.self_attn.o_proj.weight", (HIDDEN, HIDDEN), WEIGHT_SCALE
        yield f"{prefix}.post_attention_layernorm.weight", (HIDDEN,), 0
        yield f"{prefix}.mlp.gate_proj.weight", (FEED_FORWARD, HIDDEN), WEIGHT_SCALE
        yield f"{prefix}.mlp.up_proj.weight", (FEED_FORWARD, HIDDEN), WEIGHT_SCALE
        yield f"{prefix}.mlp.down_proj.weight", (HIDDEN, FEED_FORWARD), WEIGHT_SCALE
    yield "model.norm.weight", (HIDDEN,), 0
    yield "lm_head.weight", (len(VOCABULARY), HIDDEN), HEAD_SCALE


def _write_safetensors(path: Path, generator: random.Random) -> None:
    """The format of safetensors: length of the header, header in JSON, then the tensors' bytes in order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    offset = 0
    for name, shape, scale in _tensors():
        blob = _bfloat16(_values(name, shape, scale, generator))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (offset, offset + len(blob))}
        blobs.append(blob)
        offset += len(blob)
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        file.writelines(blobs)


def _values(name: str, shape: tuple[int, ...], scale: float, generator: random.Random) -> array[float]:
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if scale == 0:
        return array("f", [1.0]) * count
    values = array("f", (generator.gauss(0.0, scale) for _ in range(count)))
    if name == "lm_head.weight":
        # A row of zeros has logit 0, which some other row always beats: never the greedy choice.
        for token in (i for i, text in enumerate(VOCABULARY) if not is_printable(text)):
            values[token * HIDDEN : (token + 1) * HIDDEN] = array("f", bytes(4 * HIDDEN))
    return values


def _bfloat16(values: array[float]) -> bytes:
    """The upper halves of the floats, rounded to the nearest, ties to even."""
    bits = array("I", values.tobytes())
    return array("H", ((bit + 0x7FFF + ((bit >> 16) & 1)) >> 16 for bit in bits)).tobytes()
