"""Turns a GGUF file into a folder in the Hugging Face layout. Run as a script by the engine's Python:

    python convert.py MODEL.gguf FOLDER

The output head is written out (`lm_head.weight`) even where the model ties it to its embeddings: a tied
head is not reloaded right when vLLM swaps weights in place on CPU, an explicit one is. Needs torch,
transformers, gguf and accelerate; nothing of this project.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: Path, folder: Path) -> None:
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    weights = source.state_dict()
    head = source.get_output_embeddings().weight.detach().clone()
    config = source.config
    if "quantization_config" in config:
        del config.quantization_config
    config.tie_word_embeddings = False
    config.dtype = torch.bfloat16
    plain = type(source)(config)
    plain.load_state_dict({**weights, "lm_head.weight": head})
    plain.to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
