"""Reads one configuration file into plain data, with the line of each value.

YAML 1.2, in which `5e-5` is a number and no key may stand twice; `${NAME}` is replaced from the
environment. JSON is YAML, so DeepSpeed's file is read by the same means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from training.config.problems import ConfigError
from training.config.substitution import substitute

MAX_BYTES = 1024 * 1024
Values = dict[str, object]
"""Single values and lists by dotted key. An empty mapping stands under its own key."""


@dataclass(slots=True)
class File:
    """What one file says."""

    path: Path
    values: Values = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """`config.yaml:3` for each key and each mapping above it."""


def read_file(path: Path, environment: Mapping[str, str]) -> File:
    """Raises ConfigError if it is not there, is no YAML or names a variable that is not set."""
    name = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{name}: cannot be read: {error.strerror or error}"]) from error
    if len(data) > MAX_BYTES:
        raise ConfigError([f"{name}: is larger than {MAX_BYTES // 1024} KiB; is it the right file?"])
    root = parse(data, name)
    file = File(path)
    if root is None:
        return file
    if not isinstance(root, CommentedMap):
        raise ConfigError([f"{name}: should be a mapping of sections, like `data: {{path: ...}}`"])
    problems: list[str] = []
    _flatten(root, "", name, environment, file, problems)
    if problems:
        raise ConfigError(problems)
    return file


def parse(data: bytes | str, name: str) -> object:
    """YAML as ruamel's round-trip loader gives it (mappings know their lines). Raises ConfigError."""
    try:
        return YAML(typ="rt", pure=True).load(data)
    except MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError([f"{name}{line}: is not valid YAML: {error.problem or error.context}"]) from error
    except (YAMLError, ValueError) as error:
        raise ConfigError([f"{name}: is not valid YAML: {str(error).splitlines()[0]}"]) from error


def _flatten(
    mapping: CommentedMap,
    above: str,
    name: str,
    environment: Mapping[str, str],
    file: File,
    problems: list[str],
) -> None:
    for key, value in mapping.items():
        dotted = f"{above}{key}"
        place = f"{name}:{mapping.lc.key(key)[0] + 1}"
        file.origins[dotted] = place
        if isinstance(value, CommentedMap) and value:
            _flatten(value, f"{dotted}.", name, environment, file, problems)
            continue
        try:
            file.values[dotted] = plain(value, environment)
        except ValueError as error:
            problems.append(f"{place}: {dotted}: {error}")


def plain(value: object, environment: Mapping[str, str]) -> object:
    """ruamel's types as Python's own, with substitutions made. Raises ValueError (see `substitute`)."""
    match value:
        case None | bool():
            return value
        case str():
            return substitute(str(value), environment)
        case int():
            return int(value)
        case float():
            return float(value)
        case CommentedMap():
            return {str(key): plain(below, environment) for key, below in value.items()}
        case list():
            return [plain(below, environment) for below in value]
        case _:
            return str(value)
