"""From what the settings call a model to what an engine can be started with.

A name of a built-in model, a folder, or a hub id. Everything that can be found out about a model
without an engine is found out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from backends.models.builtin import BUILTIN, Report, builtin_model
from backends.models.shapes import context_length_problem, tensor_parallel_problem
from backends.settings import EngineSettings


class ModelUnusable(ValueError):
    """The model is not there, or not fit for these settings; the message says what would be."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    source: str
    """What `vllm serve` is given: an absolute folder, or a hub id."""
    local: bool
    """Whether all of it is on this machine."""


def served_name(settings: EngineSettings) -> str:
    """The name that clients use for the model."""
    return settings.served_name or settings.model.rstrip("/").rsplit("/", 1)[-1]


def resolve_model(
    settings: EngineSettings, *, cache: Path, engine_python: Path, report: Report
) -> ResolvedModel:
    """Find the model, or make it if it is built in. Raises ModelUnusable, ModelNotMade.

    Blocks for up to minutes where a model is made.
    """
    name = settings.model
    if name in BUILTIN:
        folder = builtin_model(name, cache=cache, engine_python=engine_python, report=report)
    elif _looks_like_folder(name):
        folder = Path(name).expanduser().absolute()
    else:
        return ResolvedModel(source=name, local=False)
    check_folder(folder, settings)
    return ResolvedModel(source=str(folder), local=True)


def check_folder(folder: Path, settings: EngineSettings) -> None:
    """Raises ModelUnusable if no engine could serve what is there with these settings."""
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        why = "there is no such folder" if not folder.is_dir() else "it has no config.json"
        raise ModelUnusable(
            f"engine.model: {settings.model}: {why}. Give a built-in model ({', '.join(BUILTIN)}), "
            "a folder in the Hugging Face layout, or a hub id such as org/model"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise ModelUnusable(f"engine.model: {path} cannot be read: {error}") from error
    problem = tensor_parallel_problem(config, settings.tensor_parallel_size) or context_length_problem(
        config, settings.max_model_len
    )
    if problem:
        raise ModelUnusable(f"{settings.model}: {problem}")


def _looks_like_folder(name: str) -> bool:
    """A hub id is `name` or `org/name`; what is written as a path or exists is a folder."""
    return name.startswith(("/", "./", "../", "~")) or name.count("/") != 1 or Path(name).is_dir()
