"""Which fields of a record are trained on, and what makes a record odd. Pure.

Four layouts, in TRL's names: `text`; `prompt` with `completion`; `messages`; and for GRPO `prompt` with
whatever else the reward functions want. The first record decides the layout, all others must have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from training.config.kinds import Method
from training.config.tree import Data
from training.data.reading import Record

_TEXTS = ("text", "content", "sentence")
_PAIRS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("question", "answer"),
    ("input", "output"),
)
_MESSAGES = ("messages", "conversations")
_PROMPTS = ("prompt", "question", "instruction", "messages")
_SPEAKERS: Mapping[str, str] = {"human": "user", "gpt": "assistant"}
"""ShareGPT's names."""
Prepared = dict[str, object]


class OddRecord(ValueError):
    """A record that cannot be trained on; the message says why."""


class Kind(StrEnum):
    TEXT = "text"
    PAIR = "prompt and completion"
    MESSAGES = "messages"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a record the things are."""

    kind: Kind
    fields: tuple[str, ...]
    """In the order of the kind's name."""
    context: str | None = None
    """Alpaca's `input`, which follows the instruction."""
    extra: tuple[str, ...] = ()
    """Columns for reward functions."""


def layout_of(record: Record, data: Data, method: Method) -> Layout:
    """What the first record shows, within what the configuration says. Raises OddRecord."""
    if method is Method.GRPO:
        field = _first(record, (data.prompt_field,) if data.prompt_field else _PROMPTS)
        return Layout(Kind.PROMPT, (field,), extra=tuple(key for key in record if key != field))
    if data.text_field:
        return Layout(Kind.TEXT, (_first(record, (data.text_field,)),))
    if data.prompt_field:
        completion = (
            (data.completion_field,) if data.completion_field else ("completion", "response", "answer")
        )
        return Layout(Kind.PAIR, (_first(record, (data.prompt_field,)), _first(record, completion)))
    for names in _MESSAGES:
        if names in record:
            return Layout(Kind.MESSAGES, (names,))
    for prompt, completion_field in _PAIRS:
        if prompt in record and completion_field in record:
            context = "input" if prompt == "instruction" and "input" in record else None
            return Layout(Kind.PAIR, (prompt, completion_field), context)
    return Layout(Kind.TEXT, (_first(record, _TEXTS),))


def _first(record: Record, names: tuple[str, ...]) -> str:
    for name in names:
        if name in record:
            return name
    found = ", ".join(map(str, record)) or "none"
    raise OddRecord(
        f"has no field {' or '.join(names)}; its fields are {found} "
        "(data.text_field, data.prompt_field and data.completion_field say which to use)"
    )


def prepare(record: Record, layout: Layout) -> Prepared:
    """The record in TRL's form. Raises OddRecord."""
    values = [_present(record, field) for field in layout.fields]
    match layout.kind:
        case Kind.TEXT:
            return {"text": _text(values[0], layout.fields[0])}
        case Kind.MESSAGES:
            return {"messages": _messages(values[0], layout.fields[0])}
        case Kind.PAIR:
            prompt = _text(values[0], layout.fields[0])
            context = record.get(layout.context) if layout.context else None
            joined = f"{prompt}\n\n{context}" if context else prompt
            return {"prompt": joined, "completion": _text(values[1], layout.fields[1])}
        case Kind.PROMPT:
            value = values[0]
            field = layout.fields[0]
            prompt_or_talk = _messages(value, field) if isinstance(value, list) else _text(value, field)
            return {"prompt": prompt_or_talk, **{key: _plain(record, key) for key in layout.extra}}


def _present(record: Record, field: str) -> object:
    if record.get(field) is None:
        raise OddRecord(f"has no {field}")
    return record[field]


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise OddRecord(f"{field} should be text, but is {_kind(value)}")
    if not value.strip():
        raise OddRecord(f"{field} is empty")
    if "\x00" in value:
        raise OddRecord(f"{field} holds a zero byte: is the file of another format?")
    return value


def _messages(value: object, field: str) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise OddRecord(f"{field} should be a list of messages, but is {_kind(value)}")
    return [_message(each, f"{field}[{index}]") for index, each in enumerate(value)]


def _message(value: object, field: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise OddRecord(f"{field} should be a mapping with role and content, but is {_kind(value)}")
    role, content = value.get("role", value.get("from")), value.get("content", value.get("value"))
    if not isinstance(role, str) or not role:
        raise OddRecord(f"{field} has no role")
    return {"role": _SPEAKERS.get(role, role), "content": _text(content, f"{field}.content")}


def _plain(record: Record, key: str) -> object:
    value = record.get(key)
    if value is not None and not isinstance(value, str | int | float | bool):
        raise OddRecord(f"{key} should be text or a number, but is {_kind(value)}")
    return value


def _kind(value: object) -> str:
    match value:
        case None:
            return "missing"
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return "a mapping"
        case str():
            return "text"
        case bool() | int() | float():
            return f"the value {value}"
        case _:
            return f"of type {type(value).__name__}"
