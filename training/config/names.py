"""Keys of the training configuration: all of them, what others call them, and the nearest one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from training.config.section import Section
from training.config.tree import TrainingConfig

NEAR = 0.6
"""How alike two keys must be (difflib's ratio) for one to be suggested for the other."""

SAME: Mapping[str, str] = {
    "optimizer.lr": "training.lr",
    "optimizer.learning_rate": "training.lr",
    "training.learning_rate": "training.lr",
    "training.num_train_epochs": "training.epochs",
    "training.per_device_train_batch_size": "training.batch_size",
    "training.gradient_accumulation_steps": "training.gradient_accumulation",
    "deepspeed_config": "engine.deepspeed_config",
    "output_dir": "training.output_dir",
}
"""Keys that are taken for another, wherever they are given."""

ELSEWHERE: Mapping[str, str] = {
    "cache": "caching of answers is the gateway's: infer_config.yaml",
    "engine.max_batch_size": "that is the serving engine's: infer_config.yaml",
    "pipeline_model_parallel": "layers are not spread over processes here; use engine.type FSDP",
    "fp16": "here it is training.precision: fp16",
    "bf16": "here it is training.precision: bf16",
    "num_train_epochs": "here it is training.epochs",
    "data_path": "here it is data.path",
    "workers": "processes are started by the launcher: torchrun --nproc_per_node=N",
}
"""What people write, and what is right instead."""


@dataclass(frozen=True, slots=True)
class Option:
    """One value that can be set."""

    key: str
    help: str
    default: str
    """As it is shown; empty: required."""
    choices: tuple[str, ...] = ()


def section_of(annotation: object) -> type[Section] | None:
    """The section that a field holds, if it holds one (or may: `Section | None`)."""
    candidates = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    for each in candidates:
        if isinstance(each, type) and issubclass(each, Section):
            return each
    return None


def options(section: type[Section] = TrainingConfig, above: str = "") -> Iterator[Option]:
    """All single values, in the order of the tree."""
    for name, field in section.model_fields.items():
        below = section_of(field.annotation)
        if below is not None:
            yield from options(below, f"{above}{name}.")
        else:
            yield Option(f"{above}{name}", _text(field), _default(field), _choices(field))


def _text(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    return "null" if value is None else str(value)


def _choices(field: FieldInfo) -> tuple[str, ...]:
    kind = field.annotation
    return (
        tuple(str(each.value) for each in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
    )


def canonical(word: str) -> str | None:
    """The whole key for what stands on a command line: `batch_size`, `--training.lr`, `learning-rate`.

    None: there is no such key, or several sections have it.
    """
    word = word.replace("-", "_")
    known = [option.key for option in options()]
    if word in SAME:
        return SAME[word]
    if word in known:
        return word
    if "." in word:
        return None
    ends = [key for key in known if key.rsplit(".", 1)[-1] == word]
    ends += [] if ends else sorted({real for other, real in SAME.items() if other.rsplit(".", 1)[-1] == word})
    return ends[0] if len(ends) == 1 else None


def advice(word: str) -> str:
    """What to write instead of an unknown key; empty: nothing comes near."""
    last = word.rsplit(".", 1)[-1]
    for each in (word, last):
        if each in ELSEWHERE:
            return ELSEWHERE[each]
    known = [option.key for option in options()]
    same_end = [key for key in known if key.rsplit(".", 1)[-1] == last]
    above = word.rpartition(".")[0]
    siblings = [key for key in known if key.rpartition(".")[0] == above] if above else known
    close = nearest(last, {key.rsplit(".", 1)[-1]: key for key in siblings})
    close = close or nearest(last, {key.rsplit(".", 1)[-1]: key for key in known})
    if same_end:
        return f"did you mean {' or '.join(same_end)}?"
    if close:
        return f"did you mean {close}?"
    section = nearest(word.split(".")[0], {name: name for name in TrainingConfig.model_fields})
    return f"did you mean {section}?" if section else f"sections are {', '.join(TrainingConfig.model_fields)}"


def nearest(word: str, choices: Mapping[str, str] | Iterable[str]) -> str | None:
    """The choice most like `word`, whatever its case and however its words are joined."""
    named = choices if isinstance(choices, Mapping) else {each: each for each in choices}
    by_form = {_form(choice): value for choice, value in named.items()}
    found = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=NEAR)
    return by_form[found[0]] if found else None


def _form(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
