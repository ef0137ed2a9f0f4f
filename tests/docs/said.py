"""What the pages say of options, metrics and commands, held against the code. Raises DocsFailed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import get_args

from ruamel.yaml import YAML

from gateway.observe.table import FAMILIES, PREFIX
from gateway.settings.document import document
from gateway.settings.load import load
from gateway.settings.options import options
from gateway.settings.tree import Settings
from tests.docs.blocks import Block, blocks, code_words, commands, words
from tests.docs.site import DOCS, ROOT, DocsFailed
from training.config.names import SAME
from training.config.tree import TrainingConfig
from training.metrics import TABLE

_OPTION = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_METRIC = re.compile(r"changeover_[a-z0-9_]+")
_INDEX = re.compile(r"\.\d+|\.\*|\.N")
FILES = (".py", ".md", ".yaml", ".yml", ".json", ".html", ".jsonl", ".csv", ".png", ".log", ".sh")
OURS = ("gateway", "deploy", "loadtests", "tests", "checkpoints", "training", "reports", "backends")
SUFFIXES = ("", "_total", "_bucket", "_sum", "_count")


def options_are_known(pages: Iterable[Path]) -> int:
    """Every `section.option` that a page names exists; how many were looked at."""
    known = {_INDEX.sub("", option.key) for option in options()} | _training_options()
    sections = {key.partition(".")[0] for key in known}
    looked, wrong = 0, []
    for page in pages:
        for word in code_words(page):
            name = word.partition(":")[0].strip()
            if _OPTION.fullmatch(name) and name.partition(".")[0] in sections and not name.endswith(FILES):
                looked += 1
                if not any(key == name or key.startswith(f"{name}.") for key in known):
                    wrong.append(f"{page.name}: `{name}` is no option")
    if wrong:
        raise DocsFailed("\n".join(wrong))
    return looked


def _training_options() -> set[str]:
    found = set(SAME)
    for section, field in TrainingConfig.model_fields.items():
        found.add(section)
        for inner in (field.annotation, *get_args(field.annotation)):
            found |= {f"{section}.{name}" for name in getattr(inner, "model_fields", {})}
    return found


def metrics_are_known(pages: Iterable[Path]) -> int:
    """Every `changeover_…` that a page names is a metric of the gateway or of the trainer."""
    known = {f"{PREFIX}{family.name}" for family in FAMILIES} | {metric.full_name for metric in TABLE}
    looked, wrong = 0, []
    for page in pages:
        for name in set(_METRIC.findall(" ".join(code_words(page)))):
            looked += 1
            whole = (name[len(each) :] in SUFFIXES for each in known if name.startswith(each))
            family = name.endswith("_") and any(each.startswith(name) for each in known)
            if not family and not any(whole):
                wrong.append(f"{page.name}: {name} is no metric")
    if wrong:
        raise DocsFailed("\n".join(wrong))
    return looked


def configuration_is_current() -> None:
    """The table of all options is what the settings say."""
    if (DOCS / "configuration.md").read_text(encoding="utf-8") != document():
        raise DocsFailed("docs/configuration.md is not what `python -m gateway.settings.document` prints")


def yaml_is_accepted(pages: Iterable[Path], folder: Path) -> int:
    """Every YAML block that is a configuration of the gateway is one; how many were read."""
    read = 0
    for page in pages:
        for block in blocks(page):
            if block.kind == "yaml" and _is_configuration(block):
                file = folder / "config.yaml"
                file.write_text(block.text, encoding="utf-8")
                try:
                    load(file, environment={})
                except Exception as error:
                    raise DocsFailed(
                        f"{page.name}: this configuration is refused: {error}\n{block.text}"
                    ) from error
                read += 1
    return read


def training_yaml_is_known(pages: Iterable[Path]) -> int:
    """Every YAML block that is a configuration of a training has known keys only; how many were read."""
    known = _training_options()
    read, wrong = 0, []
    for page in pages:
        for block in blocks(page):
            found = YAML(typ="safe").load(block.text) if block.kind == "yaml" else None
            if not isinstance(found, dict) or not set(found) <= set(TrainingConfig.model_fields):
                continue
            read += 1
            keys = [
                f"{top}.{key}" for top, inner in found.items() if isinstance(inner, dict) for key in inner
            ]
            wrong += [f"{page.name}: {key} is no option of a training" for key in keys if key not in known]
    if wrong:
        raise DocsFailed("\n".join(wrong))
    return read


def _is_configuration(block: Block) -> bool:
    found = YAML(typ="safe").load(block.text)
    return (
        isinstance(found, dict)
        and set(found) <= set(Settings.model_fields)
        and not set(found) <= set(TrainingConfig.model_fields)
    )


def commands_exist(pages: Iterable[Path]) -> int:
    """Every command that a page names exists, with each of its options; how many were run for it."""
    wrong = []
    for page in pages:
        for line in commands(page):
            wrong += [f"{page.name}: {line}: {fault}" for fault in _faults(words(line))]
    if wrong:
        raise DocsFailed("\n".join(wrong))
    return help_of.cache_info().currsize + _module_help.cache_info().currsize


def _faults(given: list[str]) -> list[str]:
    while given and re.fullmatch(r"[A-Z_]+=.*", given[0]):
        given = given[1:]
    if not given:
        return []
    name = given[0].removeprefix(".venv/bin/").removeprefix(".venv-engine/bin/")
    if name == "changeover":
        return _changeover_faults(given[1:])
    if name == "make":
        targets = [word for word in given[1:] if "=" not in word]
        return [f"there is no target {target}" for target in targets if target not in make_targets()]
    if name == "python" and len(given) > 2 and given[1] == "-m":
        return _module_faults(given[2], given[3:])
    return []


def _changeover_faults(given: list[str]) -> list[str]:
    """`list | show V` writes alternatives of the same group."""
    if "|" in given:
        first, others = given[: given.index("|")], given[given.index("|") + 1 :]
        group = _path(first)[:-1]
        return _changeover_faults(first) + _changeover_faults([*group, *others])
    path = _path(given)
    rest = given[len(path) :]
    if given and not path and not given[0].startswith("-") and re.fullmatch(r"[a-z]+", given[0]):
        return [f"there is no command {given[0]}"]
    text = help_of(tuple(path))
    return [f"{path} has no {option}" for option in _options(rest) if option not in text]


def _path(given: list[str]) -> list[str]:
    """The command and its subcommands that a line begins with."""
    path: list[str] = []
    for word in given:
        if word not in _subcommands(tuple(path)):
            break
        path.append(word)
    return path


def _options(given: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in given if re.match(r"--?[a-z]", word)]


@cache
def help_of(path: tuple[str, ...]) -> str:
    """What `changeover PATH --help` prints. Raises DocsFailed if it ends with an error."""
    done = _run(sys.executable, "-m", "gateway", *path, "--help")
    if done.returncode != 0:
        raise DocsFailed(f"changeover {' '.join(path)} --help: {done.stderr}")
    return done.stdout


def _subcommands(path: tuple[str, ...]) -> set[str]:
    listed = help_of(path).partition("Commands:")[2]
    return set(re.findall(r"^  ([a-z]+) ", listed, re.M))


@cache
def make_targets() -> frozenset[str]:
    """Of the Makefile and what it includes."""
    files = [ROOT / "Makefile", *(ROOT / "deploy" / "make").glob("*.mk")]
    found = (re.findall(r"^([a-z][a-z-]*):", file.read_text(encoding="utf-8"), re.M) for file in files)
    return frozenset(name for names in found for name in names)


def _module_faults(module: str, rest: list[str]) -> list[str]:
    if module.partition(".")[0] not in OURS:
        return []
    source = ROOT.joinpath(*module.split("."))
    if not source.with_suffix(".py").exists() and not (source / "__main__.py").exists():
        return [f"there is no module {module}"]
    wanted = _options(rest)
    if not wanted:
        return []
    text = _module_help(module)
    return [f"{module} has no {option}" for option in wanted if option not in text]


@cache
def _module_help(module: str) -> str:
    """Or its source, where it runs in the engine's environment only."""
    done = _run(sys.executable, "-m", module, "--help")
    if done.returncode == 0:
        return done.stdout
    return ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
