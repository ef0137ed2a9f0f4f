"""The settings tree seen from outside: what may stand at a place, and the list of all options.

Pure; derived from the models of `gateway.settings.tree`, so that a new field there is known everywhere.
Keys of options are dotted; `*` stands for any index of a list and any key of a mapping: `models.*.name`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from backends.settings import Section
from gateway.settings.origin import Place
from gateway.settings.tree import Settings

ANY = "*"
CONFIDENTIAL = frozenset({"auth.keys.*.sha256"})
"""Options that are not repeated to anyone, besides those of type SecretStr: where the hash belongs, people
put the key itself."""
SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
"""Entries of free mappings (the engine's environment) with such names are secrets."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand at one place: a section, a list, a mapping, or a value of `type`."""

    type: Any
    nullable: bool

    @property
    def section(self) -> type[Section] | None:
        return self.type if isinstance(self.type, type) and issubclass(self.type, Section) else None

    @property
    def element(self) -> Any | None:
        """Annotation of a list's elements; None: not a list."""
        return get_args(self.type)[0] if get_origin(self.type) is tuple else None

    @property
    def entry(self) -> Any | None:
        """Annotation of a mapping's values; None: not a mapping with free keys."""
        return get_args(self.type)[1] if get_origin(self.type) is dict else None

    @property
    def holds_sections(self) -> bool:
        """A section, or a list of them."""
        return self.section is not None or (
            self.element is not None and shape_of(self.element).section is not None
        )

    @property
    def is_text(self) -> bool:
        return isinstance(self.type, type) and issubclass(self.type, str | SecretStr | Enum)

    @property
    def is_container(self) -> bool:
        return bool(self.section or self.element or self.entry)

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, where they can be listed."""
        if isinstance(self.type, type) and issubclass(self.type, Enum):
            return tuple(str(member.value) for member in self.type)
        return ()


def shape_of(annotation: Any) -> Shape:
    """Read an annotation of the tree; `None` and validators in it are taken off."""
    nullable = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
            nullable = nullable or len(kinds) < len(get_args(annotation))
            annotation = kinds[0]
        else:
            return Shape(annotation, nullable)


def child(shape: Shape, key: str | int) -> Shape | None:
    """What may stand under `key`; None: nothing."""
    if shape.section is not None:
        field = shape.section.model_fields.get(str(key))
        return shape_of(field.annotation) if field else None
    if shape.element is not None:
        return shape_of(shape.element) if isinstance(key, int) or key == ANY else None
    return shape_of(shape.entry) if shape.entry is not None else None


def shape_at(path: Place) -> Shape | None:
    """What may stand at a place of the tree; None: nothing."""
    shape: Shape | None = Shape(Settings, nullable=False)
    for key in path:
        if shape is None:
            return None
        shape = child(shape, key)
    return shape


def pattern(path: Place) -> str:
    """The option's key for a place: `("models", 0, "name")` is `models.*.name`."""
    shape: Shape | None = Shape(Settings, nullable=False)
    parts = []
    for key in path:
        free = shape is not None and shape.section is None
        parts.append(ANY if free else str(key))
        shape = child(shape, key) if shape is not None else None
    return ".".join(parts)


def is_secret(path: Place) -> bool:
    """Whether the value at a place must not be repeated to anyone."""
    shape, above = shape_at(path), shape_at(path[:-1])
    if shape is not None and shape.type is SecretStr:
        return True
    if above is not None and above.entry is not None:
        return SECRET_NAME.search(str(path[-1])) is not None
    return pattern(path) in CONFIDENTIAL


@dataclass(frozen=True, slots=True)
class Option:
    """One key that can be set."""

    key: str
    shape: Shape
    field: FieldInfo


def options(section: type[Section] = Settings, above: str = "") -> Iterator[Option]:
    """Every option, in the order of the tree, those inside sections and lists of sections included."""
    for name, field in section.model_fields.items():
        shape = shape_of(field.annotation)
        key = above + name
        inner = shape.section or (shape_of(shape.element).section if shape.element is not None else None)
        if inner is None or shape.element is not None or shape.nullable:
            yield Option(key, shape, field)
        if inner is not None:
            yield from options(inner, f"{key}.{ANY}." if shape.element is not None else f"{key}.")
