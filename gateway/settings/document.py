"""Prints docs/configuration.md, the table of all options: `python -m gateway.settings.document`.

Made from the settings tree alone; a test compares the file in the repository with it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from enum import Enum

import msgspec
from pydantic_core import PydanticUndefined

from backends.settings import Section
from gateway.settings.effects import effect_of
from gateway.settings.environment import OTHER_VARIABLES, variable
from gateway.settings.masking import shown
from gateway.settings.options import ANY, Option, Shape, options, shape_of
from gateway.settings.tree import Settings

_HEAD = """\
# Configuration

Made by `python -m gateway.settings.document`; edit the docstrings in `gateway/settings/tree.py` and
`backends/settings.py` instead of this file.

One file, `infer_config.yaml` (YAML 1.2), named by `--config`, else by `CHANGEOVER_CONFIG`, else the one in
the working folder. Environment variables override it (`{variable}=8001` is `server.port`; lists
and mappings as YAML or JSON), and `--set server.port=8001` overrides both. A list or mapping that overrides
takes the place of the whole one before. `${{NAME}}` and `${{NAME:default}}` in the file are replaced from the
environment; `$${{` stands for `${{`. Unknown keys, wrong types and contradictions are errors;
`changeover check` shows them all at once, or the resolved configuration with the origin of each value.

"When" says whether a change takes effect on reload (SIGHUP, or the file changes) or needs a restart.
`{any}` stands for an index, from 0.
"""
_INHERITED = {
    f"models.{ANY}.engine": "engine",
    f"models.{ANY}.routing": "routing",
    f"models.{ANY}.limits": "limits",
}
"""Sections that repeat another; their options are not listed again."""


def document() -> str:
    """The page as Markdown."""
    parts = [_HEAD.format(variable=variable("server.port"), any=ANY)]
    top: list[Option] = []
    for name, field in Settings.model_fields.items():
        shape = shape_of(field.annotation)
        inner = shape.section or (shape_of(shape.element).section if shape.element is not None else None)
        rows = [option for option in options() if option.key == name or option.key.startswith(f"{name}.")]
        if inner is None:
            top += rows
            continue
        about = (field.description if shape.element is not None else None) or inspect.getdoc(inner) or ""
        parts.append(f"## `{name}`\n\n{_oneline(about)}\n\n{_table(rows)}\n")
    parts.append(f"## Others\n\n{_table(top)}\n")
    variables = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in OTHER_VARIABLES.items())
    parts.append(f"## Other environment variables\n\n| variable | meaning |\n|---|---|\n{variables}\n")
    return "\n".join(parts)


def _table(rows: list[Option]) -> str:
    return "\n".join(["| option | type | default | meaning | when |", "|---|---|---|---|---|", *_rows(rows)])


def _rows(rows: list[Option]) -> Iterator[str]:
    for option in rows:
        if any(option.key.startswith(f"{key}.") for key in _INHERITED):
            continue
        if (
            option.shape.element is not None
            and shape_of(option.shape.element).section is not None
            and "." not in option.key
        ):
            continue
        meaning = _oneline(option.field.description or "")
        if option.key in _INHERITED:
            meaning += f" Its keys are those of `{_INHERITED[option.key]}`."
        cells = [
            f"`{option.key}`",
            _kind(option.shape),
            _default(option),
            meaning,
            str(effect_of(option.key)),
        ]
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _oneline(text: str) -> str:
    return " ".join(text.split())


def _kind(shape: Shape) -> str:
    if shape.choices:
        return ", ".join(f"`{choice}`" for choice in shape.choices)
    if shape.section is not None:
        return "mapping"
    if shape.element is not None:
        return "list of mappings" if shape_of(shape.element).section is not None else "list of text"
    if shape.entry is not None:
        return "mapping of text"
    return _NAMES[shape.type.__name__]


_NAMES = {
    "str": "text",
    "SecretStr": "secret text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
}


def _default(option: Option) -> str:
    if option.field.is_required():
        return "required"
    value = option.field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, Section | Enum | tuple | dict | str | int | float):
        return f"`{msgspec.json.encode(shown(value, ())).decode()}`"
    raise TypeError(f"{option.key} has a default of an unknown kind")


if __name__ == "__main__":
    sys.stdout.write(document())
