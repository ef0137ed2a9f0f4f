"""DeepSpeed's own configuration file, and what of it belongs to the training configuration. Pure.

Trainers and DeepSpeed must be told the same batch size, learning rate and precision; what the file says
becomes our option (and wins over a default, not over a value given elsewhere), then DeepSpeed gets `auto`.
Names as in https://www.deepspeed.ai/docs/config-json/.
"""

from __future__ import annotations

from collections.abc import Mapping

_PATHS: Mapping[str, tuple[str, ...]] = {
    "training.batch_size": ("train_micro_batch_size_per_gpu",),
    "training.gradient_accumulation": ("gradient_accumulation_steps",),
    "training.max_grad_norm": ("gradient_clipping",),
    "training.lr": ("optimizer", "params", "lr"),
    "optimizer.weight_decay": ("optimizer", "params", "weight_decay"),
}
"""Our option, and where DeepSpeed has it."""

Json = dict[str, object]


def implied(file: Mapping[str, object]) -> dict[str, object]:
    """Our options that the file sets, by dotted key; giving it at all asks for DeepSpeed."""
    found = {key: value for key, path in _PATHS.items() if (value := _at(file, path)) not in (None, "auto")}
    for name in ("fp16", "bf16"):
        if _at(file, (name, "enabled")) is True:
            found["training.precision"] = name
    return found | {"engine.type": "deepspeed"}


def contradictions(file: Mapping[str, object]) -> list[str]:
    """What in the file cannot be."""
    problems = []
    if _at(file, ("fp16", "enabled")) is True and _at(file, ("bf16", "enabled")) is True:
        problems.append("fp16 and bf16 are both enabled: choose one")
    scale = _at(file, ("fp16", "loss_scale"))
    if scale is not None and (not isinstance(scale, int | float) or isinstance(scale, bool) or scale < 0):
        problems.append(f"fp16.loss_scale should be 0 (found while training) or a fixed scale, got {scale!r}")
    return problems


def for_trainer(file: Mapping[str, object], precision: str) -> Json:
    """The file as TRL's trainer wants it: `auto` where it decides, the rest as it was.

    `fp16.loss_scale` stays: 0 is a scale that is found while training, else it is fixed.
    """
    result: Json = {key: _copy(value) for key, value in file.items()}
    for path in _PATHS.values():
        if _at(result, path) is not None:
            _put(result, path, "auto")
    result.setdefault("train_micro_batch_size_per_gpu", "auto")
    result.setdefault("gradient_accumulation_steps", "auto")
    result.setdefault("gradient_clipping", "auto")
    result.pop("train_batch_size", None)
    for name in ("fp16", "bf16"):
        if name in result or precision == name:
            section = result.setdefault(name, {})
            assert isinstance(section, dict)
            section["enabled"] = precision == name
    return result


def _copy(value: object) -> object:
    return {key: _copy(below) for key, below in value.items()} if isinstance(value, dict) else value


def _at(mapping: Mapping[str, object], path: tuple[str, ...]) -> object:
    value: object = mapping
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _put(mapping: Json, path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        below = mapping[key]
        assert isinstance(below, dict)
        mapping = below
    mapping[path[-1]] = value
