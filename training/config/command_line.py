"""The command line of `train.py`: files to read, and options that win over them. Pure.

`--training.lr 1e-5`, `--lr 1e-5` and `--lr=1e-5` are the same; a name that several sections have needs its
section. What launchers add (`--local_rank`) is accepted and not used: ranks come from the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from training.config.files import parse, plain
from training.config.names import advice, canonical, options
from training.config.problems import ConfigError

_FILES = ("config", "train_config")
_FLAGS = ("check", "help")
_FROM_LAUNCHERS = ("local_rank", "local-rank")
HEAD = """\
usage: python train.py --config config.yaml [--OPTION VALUE ...]

Trains a language model on texts (SFT) or rewards (GRPO), alone or under torchrun, accelerate or deepspeed.

  --config FILE           the run's configuration (YAML); `${NAME}` in it comes from the environment
  --train_config FILE     a second one, which wins over the first: optimizer, engine, distributed
  --deepspeed_config FILE DeepSpeed's own JSON file
  --sweep FILE            run each combination of the values in this file, and compare them
  --check                 print the resolved configuration and end
  --help                  print this

Every option may also be given here, with its section (`--training.lr 1e-5`) or, where only one section has
it, without (`--lr 1e-5`); it wins over the files.
"""


@dataclass(slots=True)
class CommandLine:
    """What was asked for."""

    files: list[Path] = field(default_factory=list)
    """In the order in which they win, the strongest last."""
    sweep: Path | None = None
    values: dict[str, object] = field(default_factory=dict)
    """By dotted key."""
    origins: dict[str, str] = field(default_factory=dict)
    check: bool = False
    help: bool = False
    words: list[str] = field(default_factory=list)
    """As given, less `--sweep` and its file."""


def parse_arguments(arguments: Sequence[str]) -> CommandLine:
    """Raises ConfigError with every word that means nothing."""
    found = CommandLine()
    problems: list[str] = []
    named: dict[str, Path] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            problems.append(f"{word}: options begin with --, as in --config config.yaml")
            continue
        name, separator, text = word[2:].partition("=")
        if name in _FLAGS:
            found.check |= name == "check"
            found.help |= name == "help"
            continue
        if not separator:
            if not words or words[0].startswith("--"):
                problems.append(f"--{name}: has no value")
                continue
            text = words.pop(0)
        if name in _FILES:
            named[name] = Path(text)
        elif name == "sweep":
            found.sweep = Path(text)
            continue
        elif name not in _FROM_LAUNCHERS:
            problems += _assign(found, name, text)
        found.words += [f"--{name}", text]
    if problems:
        raise ConfigError(problems)
    found.files = [named[name] for name in _FILES if name in named]
    return found


def _assign(found: CommandLine, name: str, text: str) -> list[str]:
    key = canonical(name)
    if key is None:
        return [f"--{name}: is no known option; {advice(name.replace('-', '_'))}"]
    if key in found.values:
        return [f"--{name}: {key} is given twice"]
    try:
        found.values[key] = _value(text)
    except ConfigError as error:
        return [f"--{name}: {problem}" for problem in error.problems]
    found.origins[key] = f"--{name}"
    return []


def _value(text: str) -> object:
    """A list, a mapping or null; all else stays text, which the option's type reads."""
    if text in ("null", "~"):
        return None
    return plain(parse(text, "value"), {}) if text[:1] in ("[", "{") else text


def help_text() -> str:
    """All options with their defaults."""
    lines = [HEAD]
    section = ""
    for option in options():
        above = option.key.rpartition(".")[0]
        if above != section:
            section = above
            lines.append(f"\n{section}:")
        default = f" (default: {option.default})" if option.default else " (required)"
        lines.append(f"  --{option.key}{default}\n      {option.help}")
    return "\n".join(lines) + "\n"
