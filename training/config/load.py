"""Puts a run's configuration together: files, then DeepSpeed's file, then the command line, which wins.

All or nothing: a valid tree, or ConfigError with everything that is wrong. The only place that reads
configuration files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pydantic import ValidationError

from training.config.command_line import CommandLine
from training.config.deepspeed import Json, contradictions, implied
from training.config.files import Values
from training.config.files import read_file as read_yaml
from training.config.names import SAME
from training.config.problems import ConfigError, complaints
from training.config.tree import TrainingConfig

_DEEPSPEED = "engine.deepspeed_config"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration, and what it was made of."""

    config: TrainingConfig
    files: tuple[Path, ...]
    """All files that were read."""
    deepspeed: Json | None = None
    """The content of DeepSpeed's file."""
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)


def load(line: CommandLine, environment: Mapping[str, str]) -> Loaded:
    """Read what the command line names. Raises ConfigError."""
    values: Values = {}
    origins: dict[str, str] = {}
    for path in line.files:
        _add(values, origins, *_read(path, environment))
    _add(values, origins, line.values, line.origins)
    files = list(line.files)
    deepspeed = None
    if isinstance(named := values.get(_DEEPSPEED), str):
        deepspeed = _read_deepspeed(Path(named))
        files.append(Path(named))
        for key, value in implied(deepspeed).items():
            values.setdefault(key, value)
            origins.setdefault(key, named)
    try:
        config = TrainingConfig.model_validate(_tree(values))
    except ValidationError as error:
        raise ConfigError(complaints(error, origins)) from error
    return Loaded(config, tuple(files), deepspeed, origins)


def _read(path: Path, environment: Mapping[str, str]) -> tuple[Values, Mapping[str, str]]:
    """A file's values under their own names. Two names of one option must agree."""
    file = read_yaml(path, environment)
    values: Values = {}
    origins = dict(file.origins)
    names: dict[str, str] = {}
    problems = []
    for given, value in file.values.items():
        key = SAME.get(given, given)
        if key in values and values[key] != value:
            problems.append(
                f"{file.origins[given]}: {given} is {value}, but {names[key]} is {values[key]}: "
                "they are the same option, give one"
            )
        values[key], names[key] = value, given
        origins[key] = file.origins[given]
    if problems:
        raise ConfigError(problems)
    return values, origins


def _add(values: Values, origins: dict[str, str], more: Values, where: Mapping[str, str]) -> None:
    """What is given later wins; a value and what stands below it cannot both be."""
    for key, value in more.items():
        for other in [each for each in values if each.startswith(f"{key}.") or key.startswith(f"{each}.")]:
            del values[other]
        values[key] = value
    origins.update(where)


def _tree(values: Values) -> dict[str, object]:
    tree: dict[str, object] = {}
    problems = []
    for key, value in values.items():
        *above, last = key.split(".")
        below = tree
        for part in above:
            found = below.setdefault(part, {})
            if not isinstance(found, dict):
                problems.append(f"{key}: there is no such place in what stands above it")
                found = {}
            below = found
        below[last] = value
    if problems:
        raise ConfigError(problems)
    return tree


def _read_deepspeed(path: Path) -> Json:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except msgspec.DecodeError as error:
        raise ConfigError([f"{path}: is not valid JSON: {error}"]) from error
    if not isinstance(content, dict):
        raise ConfigError([f"{path}: should be DeepSpeed's JSON configuration"])
    problems = contradictions(content)
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    return content


def resolved(config: TrainingConfig) -> dict[str, object]:
    """The whole tree as plain data, as it is saved with the run."""
    return config.model_dump(mode="json")


def differences(
    old: Mapping[str, object], new: Mapping[str, object], ignored: Sequence[str] = (), above: str = ""
) -> list[str]:
    """`training.lr: 1e-05 -> 5e-05` for each value that differs; `ignored` are sections or keys."""
    found = []
    for name in dict.fromkeys([*old, *new]):
        key = f"{above}{name}"
        if key in ignored:
            continue
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, ignored, f"{key}.")
        elif before != after:
            found.append(f"{key}: {before} -> {after}")
    return found
