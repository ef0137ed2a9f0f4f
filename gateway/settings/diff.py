"""What a reload changes, and which of it needs a restart. Pure.

Models and API keys are compared by name and endpoints by URL, so that taking out the first is one change.
Secrets are compared by value and shown masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backends.settings import Section
from gateway.settings.effects import Effect, effect_of
from gateway.settings.masking import shown
from gateway.settings.options import pattern
from gateway.settings.origin import Place
from gateway.settings.tree import Endpoint, Key, Model, Settings


@dataclass(frozen=True, slots=True)
class Change:
    """One option that differs. `old` and `new` are plain data with secrets masked; None: absent or null."""

    key: str
    """Dotted; elements of lists by name: `models[gpt2].limits.max_queued`."""
    old: object
    new: object
    effect: Effect

    def __str__(self) -> str:
        note = " (needs a restart)" if self.effect is Effect.RESTART else ""
        return f"{self.key}: {self.old!r} -> {self.new!r}{note}"


@dataclass(frozen=True, slots=True)
class Diff:
    """All that differs; false if nothing does."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def needs_restart(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.effect is Effect.RESTART)

    @property
    def takes_effect(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.effect is Effect.RELOAD)


def diff(old: Settings, new: Settings) -> Diff:
    """What changes when `new` takes the place of `old`."""
    return Diff(tuple(_sections(old, new, (), "")))


def _sections(old: Section, new: Section, path: Place, label: str) -> Iterator[Change]:
    for key in type(new).model_fields:
        yield from _values(
            getattr(old, key), getattr(new, key), (*path, key), f"{label}.{key}" if label else key
        )


def _values(old: object, new: object, path: Place, label: str) -> Iterator[Change]:
    if isinstance(old, Section) and isinstance(new, Section):
        yield from _sections(old, new, path, label)
    elif isinstance(old, tuple) and isinstance(new, tuple) and _are_sections(old + new):
        yield from _lists(old, new, path, label)
    elif old != new:
        yield Change(label, shown(old, path), shown(new, path), _effect(path, old, new))


def _are_sections(values: tuple[object, ...]) -> bool:
    return bool(values) and isinstance(values[0], Section)


def _lists(old: tuple[Section, ...], new: tuple[Section, ...], path: Place, label: str) -> Iterator[Change]:
    before = {_name(element, index): element for index, element in enumerate(old)}
    after = {_name(element, index): element for index, element in enumerate(new)}
    for index, name in enumerate([*before, *(name for name in after if name not in before)]):
        yield from _values(before.get(name), after.get(name), (*path, index), f"{label}[{name}]")
    kept_before = [name for name in before if name in after]
    kept_after = [name for name in after if name in before]
    if kept_before != kept_after:
        yield Change(f"{label} (order)", kept_before, kept_after, effect_of(pattern(path)))


def _name(element: Section, index: int) -> str:
    match element:
        case Model() | Key():
            return element.name
        case Endpoint():
            return str(shown(element.url, ()))
        case _:
            return str(index)


def _effect(path: Place, old: object, new: object) -> Effect:
    """A whole section that comes or goes needs a restart if anything set in it does."""
    key = pattern(path)
    for section in (old, new):
        if isinstance(section, Section) and any(
            effect_of(f"{key}.{field}") is Effect.RESTART and getattr(section, field) is not None
            for field in type(section).model_fields
        ):
            return Effect.RESTART
    return effect_of(key)
