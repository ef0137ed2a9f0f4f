"""What is wrong with a training configuration: all of it, in one exception. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from training.config.names import advice, nearest, options

_WORDS: Mapping[str, str] = {
    "missing": "is required and not given",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be text",
    "tuple_type": "should be a list, like [first, second]",
    "model_type": "should be a mapping",
    "greater_than": "should be above {gt}",
    "greater_than_equal": "should be at least {ge}",
    "less_than": "should be below {lt}",
    "less_than_equal": "should be at most {le}",
    "string_too_short": "should not be empty",
}


class ConfigError(Exception):
    """The configuration cannot be used. `problems` is never empty; `str()` has a line for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))


def complaints(error: ValidationError, origins: Mapping[str, str]) -> list[str]:
    """A line for each mistake: where it stands, which key, what is wrong, what is near.

    origins: the place of each value (`config.yaml:3`, `--lr`), by dotted key.
    """
    return [_complaint(each, origins) for each in error.errors(include_url=False)]


def _complaint(error: ErrorDetails, origins: Mapping[str, str]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    place = _place(key, origins)
    said = ": ".join(part for part in (place, key) if part)
    if error["type"] == "extra_forbidden":
        return f"{said}: is no known key; {advice(key)}"
    if error["type"] == "value_error":
        return ": ".join(part for part in (said, error["msg"].removeprefix("Value error, ")) if part)
    if error["type"] == "enum":
        return f"{said}: {_not_among(key, str(error['input']))}"
    words = _WORDS.get(error["type"])
    what = words.format_map(error.get("ctx", {})) if words else error["msg"]
    given = error["input"]
    shown = f", got {given!r}" if isinstance(given, str | int | float) and error["type"] != "missing" else ""
    hint = "; give it in the file or as --data.path" if key in ("data", "data.path") and not shown else ""
    return f"{said}: {what}{shown}{hint}"


def _not_among(key: str, given: str) -> str:
    if given.lower() == "vllm":
        return (
            "VLLM serves and does not train: it belongs into infer_config.yaml; here DDP, FSDP or DeepSpeed"
        )
    choices = next((option.choices for option in options() if option.key == key), ())
    close = nearest(given, choices)
    hint = f"; did you mean {close}?" if close else ""
    return f"should be one of {', '.join(choices)}, got {given!r}{hint}"


def _place(key: str, origins: Mapping[str, str]) -> str:
    """Where the key stands, or what is above it."""
    while key:
        if key in origins:
            return origins[key]
        key = key.rpartition(".")[0]
    return ""
