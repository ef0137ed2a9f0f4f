"""Writes copied weights as a folder in the Hugging Face layout. Needs transformers; peft for adapters.

Configuration, tokenizer and template are taken byte for byte from the folder that the run began with, as
engines were launched with them: a trainer that writes them anew changes their bytes, and a version that
differs there can only be served by a restart. What the run itself changed (a grown vocabulary, another
template) is written from its own objects.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from checkpoints.contents import CONFIG, SPECIAL_FILES, TOKENIZER_FILES
from training.exporter.gather import Tensors

_TOKENIZER = (*TOKENIZER_FILES, *SPECIAL_FILES, "tokenizer_config.json", "chat_template.jinja")
_GENERATION = "generation_config.json"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around the weights of one run; holds no weights."""

    skeleton: Any
    """The model without memory (torch's meta device), to know the names that files have."""
    tokenizer: Any
    source: Path | None
    """The folder that the run began with, if it is on this disk."""
    dtype: Any
    """torch's, of the published weights."""


def surroundings(model: Any, tokenizer: Any, dtype: Any | None) -> Surroundings:
    """Of the model without any wrapper and adapter. dtype None: that of the source folder."""
    named = Path(str(model.config._name_or_path or ""))
    source = named if (named / CONFIG).is_file() else None
    kind = dtype if dtype is not None else _dtype_of(source, model)
    with torch.device("meta"):
        skeleton = type(model)(copy.deepcopy(model.config)).to(kind)
    return Surroundings(skeleton, tokenizer, source, kind)


def write_model(around: Surroundings, tensors: Tensors, folder: Path) -> None:
    """Weights, configuration and tokenizer into an existing, empty folder. Raises OSError."""
    around.skeleton.save_pretrained(folder, state_dict=tensors)
    if around.source is not None:
        _take_configuration(around.source, folder, around.dtype)
    if around.tokenizer is None:
        return
    if around.source is not None and _is_of(around.tokenizer, around.source):
        for name in _TOKENIZER:
            if (around.source / name).is_file():
                shutil.copyfile(around.source / name, folder / name)
    else:
        around.tokenizer.save_pretrained(folder)


def adapter_writer(model: Any, tensors: Tensors) -> Callable[[Path], None]:
    """Writes an adapter alone: `adapter_config.json`, `adapter_model.safetensors`. `model`: peft's."""
    from peft import get_peft_model_state_dict

    from training.exporter.lora import ADAPTER

    config = copy.deepcopy(model.peft_config[ADAPTER])
    config.inference_mode = True
    own = get_peft_model_state_dict(model, state_dict=tensors, adapter_name=ADAPTER)

    def write(folder: Path) -> None:
        from safetensors.torch import save_file

        save_file(own, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(str(folder))

    return write


def _dtype_of(source: Path | None, model: Any) -> Any:
    config = _json(source / CONFIG) if source is not None else {}
    name = config.get("dtype") or config.get("torch_dtype")
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return kinds.get(str(name), model.dtype)


def _take_configuration(source: Path, folder: Path, dtype: Any) -> None:
    """The source's, unless the run changed it: then what was written stays."""
    before, now = _json(source / CONFIG), _json(folder / CONFIG)
    if any(before.get(key) != now.get(key) for key in ("vocab_size", "architectures", "tie_word_embeddings")):
        return
    key = "dtype" if "dtype" in before or "torch_dtype" not in before else "torch_dtype"
    name = str(dtype).removeprefix("torch.")
    if before.get(key) in (name, None):
        shutil.copyfile(source / CONFIG, folder / CONFIG)
    else:
        changed = msgspec.json.format(msgspec.json.encode({**before, key: name}), indent=2)
        (folder / CONFIG).write_bytes(changed)
    if (source / _GENERATION).is_file():
        shutil.copyfile(source / _GENERATION, folder / _GENERATION)
    else:
        (folder / _GENERATION).unlink(missing_ok=True)


def _is_of(tokenizer: Any, source: Path) -> bool:
    """Whether the run's tokenizer is the source's: the same vocabulary and template."""
    if not any((source / name).is_file() for name in TOKENIZER_FILES):
        return False
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(source, local_files_only=True)
    same = theirs.get_vocab() == tokenizer.get_vocab()
    return bool(same and theirs.chat_template == tokenizer.chat_template)


def _json(path: Path) -> dict[str, object]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
