"""The model and the tokenizer that a run begins with. Needs torch, transformers, peft."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from training.config.tree import Lora, Model
from training.launch.errors import LaunchError

BUILTIN = ("smollm2-135m-instruct", "tiny-llama")
"""Made by `python -m backends.models NAME`; a program of its own, as training imports nothing of engines."""


def source_of(model: Model) -> str:
    """A folder or hub id to load from; makes a built-in model if need be (a minute). Raises LaunchError."""
    if model.pretrained_path is not None:
        folder = Path(model.pretrained_path).expanduser()
        if not (folder / "config.json").is_file():
            what = "has no config.json" if folder.is_dir() else "there is no such folder"
            raise LaunchError(
                f"model.pretrained_path: {folder}: {what}; give a folder in the Hugging Face layout"
            )
        return str(folder)
    if model.name in BUILTIN:
        done = subprocess.run(
            [sys.executable, "-m", "backends.models", model.name],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            cwd=Path(__file__).resolve().parents[2],
        )
        if done.returncode != 0:
            raise LaunchError(f"model.name: {model.name} could not be made; the reason stands above")
        return done.stdout.strip().splitlines()[-1]
    return model.name


def load_tokenizer(model: Model, source: str) -> Any:
    """With a padding token. Raises LaunchError."""
    from transformers import AutoTokenizer

    place = model.tokenizer_path or source
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        raise LaunchError(f"tokenizer of {place} cannot be loaded: {_first_line(error)}") from error
    if tokenizer.eos_token is None:
        raise LaunchError(f"tokenizer of {place} has no end-of-text token (eos_token)")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(source: str) -> tuple[Any, Any]:
    """The model in float32, which the optimizer works on whatever the precision; and the type it came in.

    Raises LaunchError.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        came_in = AutoConfig.from_pretrained(source).dtype or torch.float32
        return AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32), came_in
    except (OSError, ValueError) as error:
        raise LaunchError(f"model {source} cannot be loaded: {_first_line(error)}") from error


def adapter(lora: Lora | None) -> Any:
    """peft's configuration, or None."""
    if lora is None:
        return None
    from peft import LoraConfig

    modules: str | list[str] = list(lora.target_modules)
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if modules == ["all-linear"] else modules,
        task_type="CAUSAL_LM",
    )


def stay_offline_if_local(source: str) -> None:
    """A model on this disk needs nothing from a hub; without network that saves minutes of retries."""
    if Path(source).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # noqa: TID251 (read by huggingface_hub)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
