"""Loads the settings from file, environment and flags, in this order of precedence, the strongest last.

All or nothing: either valid settings with the origin of each value, or SettingsError with all that is wrong.
The only place that reads a configuration file. A value from environment or flag takes the place of the
whole value before it: a list or mapping is not merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from backends.settings import Section
from gateway.settings.complaints import complaints, contradicting
from gateway.settings.environment import CONFIG_VARIABLE, Assignment, assignments, override, parse_key
from gateway.settings.nodes import Leaf, Node, Table, find, plain, put, step, without
from gateway.settings.options import shape_at
from gateway.settings.origin import DEFAULT, Origin, Place, Source, dotted
from gateway.settings.problems import Problem, SettingsError
from gateway.settings.reader import Reading, read_bytes, typed
from gateway.settings.tree import Settings

DEFAULT_FILE = "infer_config.yaml"
_ROUNDS = 8
"""Times that the rest is validated again after the faulty values were taken out, to find what they hid."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Valid settings and where each value came from."""

    settings: Settings
    origins: Mapping[str, Origin] = field(repr=False)
    """By dotted key of each single value (`models.0.name`)."""
    path: Path | None = None
    """The file that was read, absolute, links in it not followed; None: there was none."""


def find_file(path: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read: `path`, else what CHANGEOVER_CONFIG names, else ./infer_config.yaml if it exists."""
    if path is None and environment.get(CONFIG_VARIABLE):
        path = Path(environment[CONFIG_VARIABLE])
    if path is None and Path(DEFAULT_FILE).exists():
        path = Path(DEFAULT_FILE)
    return path.absolute() if path is not None else None


def load(
    path: Path | None,
    *,
    environment: Mapping[str, str],
    overrides: Mapping[str, str] = MappingProxyType({}),
) -> Loaded:
    """Read the file that `find_file` names, and validate.

    overrides: dotted keys with their text, as given by `--set server.port=8001`.
    Raises SettingsError with every problem. Blocks while the file is read.
    """
    file = find_file(path, environment)
    reading = _read(file, environment) if file is not None else Reading()
    problems = list(reading.problems)
    root = _table(reading.root, file, problems)
    found, unknown = assignments(environment)
    problems += unknown
    for key, text in overrides.items():
        assignment = override(key, text)
        if isinstance(assignment, Problem):
            problems.append(assignment)
        else:
            found.append(assignment)
    problems += _assign(root, found, known=not reading.problems)
    settings, invalid = _validate(root, {parse_key(problem.key) for problem in problems})
    problems += invalid
    if settings is None or problems:
        raise SettingsError(problems)
    return Loaded(settings, MappingProxyType(dict(_origins(settings, root, ()))), file)


def _read(file: Path, environment: Mapping[str, str]) -> Reading:
    name = _display(file)
    try:
        data = file.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        return Reading(problems=[Problem(Origin(Source.FILE, name), "", what)])
    return read_bytes(data, name, environment)


def _display(file: Path) -> str:
    """The file's path as people know it: from the working folder, if it is below that."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def _table(root: Node | None, file: Path | None, problems: list[Problem]) -> Table:
    """The file's mapping; empty for an empty file, and, with a problem, for content that is no mapping."""
    if isinstance(root, Table):
        return root
    origin = root.origin if root is not None else Origin(Source.FILE, str(file or ""))
    if root is not None and not (isinstance(root, Leaf) and root.value is None):
        sections = ", ".join(Settings.model_fields)
        problems.append(Problem(origin, "", "should be a mapping of sections", f"its keys are {sections}"))
    return Table((), origin, {})


def _assign(root: Table, found: Iterable[Assignment], *, known: bool) -> list[Problem]:
    """Put values from environment and flags into the tree. known: what the file holds could be read."""
    problems: list[Problem] = []
    for assignment in found:
        reading = typed(assignment.text, shape_at(assignment.path), assignment.origin, assignment.path)
        problems += reading.problems
        if reading.root is None or reading.problems:
            continue
        if not put(root, assignment.path, reading.root) and known:
            what = "cannot be set: there is no such place in what stands above it"
            problems.append(Problem(assignment.origin, dotted(assignment.path), what))
    return problems


def _validate(root: Table, unread: Collection[Place]) -> tuple[Settings | None, list[Problem]]:
    """Valid settings, or all problems: faulty values are taken out until what is left is valid.

    That a value is missing, or contradicts another, is no problem of its own where one of them was taken out.
    unread: places whose values were refused before.
    """
    problems: list[Problem] = []
    gone: set[Place] = set(unread)
    tree: Node | None = root
    for _ in range(_ROUNDS):
        if tree is None:
            break
        try:
            settings = Settings.model_validate(plain(tree))
        except ValidationError as error:
            found = error.errors(include_url=False)
        else:
            return (None if problems else settings), problems
        fresh = [
            each for each in found if not any(_original(tree, place) in gone for place in contradicting(each))
        ]
        problems += complaints(tree, fresh)
        faulty = [find(tree, place)[0] for each in found for place in contradicting(each)]
        gone |= {_original(tree, place) for each in found for place in contradicting(each)}
        tree = without(tree, {id(node) for node in faulty if node is not tree})
    return None, problems


def _original(tree: Node, place: Place) -> Place:
    """A place as it was in the whole tree."""
    node, rest = find(tree, place)
    return (*node.path, *rest)


def _origins(value: object, node: Node | None, place: Place) -> Iterable[tuple[str, Origin]]:
    """The origin of each single value below `place`; `node` is what was given there, None: nothing."""
    if isinstance(value, Section):
        for key in type(value).model_fields:
            given = node if not isinstance(node, Table) else step(node, key)
            if key not in value.model_fields_set:
                given = None
            yield from _origins(getattr(value, key), given, (*place, key))
    elif isinstance(value, tuple) and value and isinstance(value[0], Section):
        for index, element in enumerate(value):
            yield from _origins(element, step(node, index) if node is not None else None, (*place, index))
    else:
        yield dotted(place), node.origin if node is not None else DEFAULT
