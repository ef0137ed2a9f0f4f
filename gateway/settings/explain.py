"""The resolved configuration as people read it: every value, and where it came from. Pure.

The text is valid YAML with the origins as comments, so that it can be pasted into a file; secrets are masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from backends.settings import Section
from gateway.settings.load import Loaded
from gateway.settings.masking import shown
from gateway.settings.origin import DEFAULT, Origin, Place, Source, dotted

_COMMENT_COLUMN = 44


def explain_text(loaded: Loaded, *, changed_only: bool = False) -> str:
    """One line a value. changed_only: leave out what is at its default."""
    lines = list(_lines(loaded.settings, (), "", loaded.origins, changed_only))
    return "\n".join(lines) or "# everything is at its default"


def explain_json(loaded: Loaded, *, changed_only: bool = False) -> bytes:
    """The tree as JSON; each single value is `{"value", "origin", "source", "file", "line"}`."""
    tree = _tree(loaded.settings, (), loaded.origins, changed_only)
    return msgspec.json.format(msgspec.json.encode(tree), indent=2)


def _is_list(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Section)


def _lines(
    section: Section, path: Place, indent: str, origins: Mapping[str, Origin], changed_only: bool
) -> Iterator[str]:
    for key in type(section).model_fields:
        value, place = getattr(section, key), (*path, key)
        if isinstance(value, Section):
            below = list(_lines(value, place, f"{indent}  ", origins, changed_only))
            yield from [f"{indent}{key}:", *below] if below else []
        elif _is_list(value):
            yield f"{indent}{key}:"
            for index, element in enumerate(value):
                below = list(_lines(element, (*place, index), f"{indent}    ", origins, changed_only))
                yield from [f"{indent}  - {below[0].lstrip()}", *below[1:]]
        else:
            origin = origins.get(dotted(place), DEFAULT)
            if not (changed_only and origin.source is Source.DEFAULT):
                text = msgspec.json.encode(shown(value, place)).decode()
                yield f"{f'{indent}{key}: {text}':<{_COMMENT_COLUMN}}  # {origin}"


def _tree(
    section: Section, path: Place, origins: Mapping[str, Origin], changed_only: bool
) -> dict[str, object]:
    tree: dict[str, object] = {}
    for key in type(section).model_fields:
        value, place = getattr(section, key), (*path, key)
        if isinstance(value, Section):
            below = _tree(value, place, origins, changed_only)
            if below or not changed_only:
                tree[key] = below
        elif _is_list(value):
            tree[key] = [
                _tree(element, (*place, index), origins, changed_only) for index, element in enumerate(value)
            ]
        else:
            origin = origins.get(dotted(place), DEFAULT)
            if not (changed_only and origin.source is Source.DEFAULT):
                tree[key] = {"value": shown(value, place), **_origin(origin)}
    return tree


def _origin(origin: Origin) -> dict[str, object]:
    fields: dict[str, object] = {"origin": str(origin), "source": str(origin.source)}
    if origin.source is Source.FILE:
        fields |= {"file": origin.name, "line": origin.line}
    return fields
