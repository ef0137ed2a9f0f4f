"""Which environment variables are settings: `CHANGEOVER_SERVER__PORT` is `server.port`. Pure.

Two underscores separate keys; indices of lists count from 0 (`CHANGEOVER_MODELS__0__NAME`). A variable that
was meant as a setting and is none is a problem, never ignored in silence. Others with the prefix are left
alone: those in OTHER_VARIABLES, and those that Kubernetes sets for a Service called `changeover…`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.settings.options import ANY, Option, options, shape_at
from gateway.settings.origin import Origin, Place, Source
from gateway.settings.problems import Problem, nearest

PREFIX = "CHANGEOVER_"
CONFIG_VARIABLE = "CHANGEOVER_CONFIG"
OTHER_VARIABLES: Mapping[str, str] = {
    CONFIG_VARIABLE: "The configuration file, where `--config` names none.",
    "CHANGEOVER_CACHE_DIR": "Folder for converted models and other things that can be made again.",
    "CHANGEOVER_ENGINE_VENV": "The virtual environment that has vLLM. Default: `.venv-engine`.",
    "CHANGEOVER_TOKEN": "The token of an engine's guard, where `changeover verify` compares checksums.",
    "CHANGEOVER_STORE": "The checkpoint store, where `--store` names none.",
    "CHANGEOVER_ENGINE_API_KEY": "The engine's own API key, where `changeover verify` asks it directly.",
    "CHANGEOVER_GUARD_TOKEN": "Set by the backend for its engine: the token of the control paths.",
    "CHANGEOVER_MODEL_VERSION": "Set by the backend for its engine: the version of its weights.",
    "CHANGEOVER_ELSEWHERE": "Set by the backend for its engine: start out of rotation, for this reason.",
    "CHANGEOVER_CONTROL_TOKEN": "Token of `backend --control-listen`, without `admin.control_token`.",
}
"""Variables of the project that are no settings, and what they are for."""

_KUBERNETES = re.compile(r"_(SERVICE_(HOST|PORT(_.+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)?)$")
_KUBERNETES_URL = re.compile(r"^(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Text for the option at a place. Not in the repr: it may be a secret."""

    path: Place
    text: str
    origin: Origin

    def __repr__(self) -> str:
        return f"Assignment({self.path!r}, {self.origin!s})"


def assignments(environment: Mapping[str, str]) -> tuple[list[Assignment], list[Problem]]:
    """The settings in the environment, wholes before their parts, and what only looks like one."""
    found: list[Assignment] = []
    problems: list[Problem] = []
    for name in sorted(name for name in environment if name.startswith(PREFIX)):
        if name in OTHER_VARIABLES:
            continue
        origin = Origin(Source.ENVIRONMENT, name)
        path = _path(name.removeprefix(PREFIX).split("__"))
        if shape_at(path) is not None:
            found.append(Assignment(path, environment[name], origin))
        elif not _from_kubernetes(name, environment[name]) and (meant := _meant(name)) is not None:
            problems.append(Problem(origin, "", "is no setting", meant))
    return sorted(found, key=lambda assignment: len(assignment.path)), problems


def override(key: str, text: str) -> Assignment | Problem:
    """A flag's `server.port=8001`."""
    origin = Origin(Source.FLAG, key)
    path = parse_key(key)
    if shape_at(path) is not None:
        return Assignment(path, text, origin)
    known = {option.key: option for option in options()}
    close = nearest(key, known) or _by_last_name(key.rsplit(".", 1)[-1], known)
    return Problem(
        origin, "", "is no setting", f"did you mean {close}?" if close else "`changeover check` shows all"
    )


def parse_key(key: str) -> Place:
    """`models.0.name` as a place."""
    return tuple(int(part) if part.isascii() and part.isdigit() else part for part in key.split("."))


def variable(key: str) -> str:
    """The variable's name for an option: `server.port` is CHANGEOVER_SERVER__PORT."""
    return PREFIX + key.replace(f".{ANY}", ".0").replace(".", "__").upper()


def _path(parts: list[str]) -> Place:
    """Keys are lower-case; those of free mappings (`engine.env`) stay as they are."""
    path: Place = ()
    for part in parts:
        shape = shape_at(path)
        if shape is not None and shape.entry is not None:
            path = (*path, part)
        else:
            path = (*path, int(part) if part.isascii() and part.isdigit() else part.lower())
    return path


def _from_kubernetes(name: str, value: str) -> bool:
    """Whether Kubernetes set it for a Service of the same namespace (`CHANGEOVER_PORT=tcp://10.0.0.1:80`)."""
    if not _KUBERNETES.search(name):
        return False
    return (
        "_SERVICE_" in name
        or bool(_KUBERNETES_URL.match(value))
        or re.search(r"_PORT_\d+_", name) is not None
    )


def _meant(name: str) -> str | None:
    """What a variable that is no setting should be called; None: it was not meant as one."""
    bare = name.removeprefix(PREFIX)
    known = {variable(option.key).removeprefix(PREFIX): option for option in options()}
    last = _by_last_name(bare.rsplit("__", 1)[-1], known)
    close = nearest(bare, known) if "__" in bare else last  # CHANGEOVER_PORT is nobody's neighbour
    close = close or last or nearest(bare, known)
    if close is not None:
        return f"did you mean {PREFIX}{close}?"
    return f"settings begin with {', '.join(_sections())}" if "__" in bare else None


def _by_last_name(last: str, known: Mapping[str, Option]) -> str | None:
    same = [name for name, option in known.items() if option.key.rsplit(".", 1)[-1] == last.lower()]
    return same[0] if same else None


def _sections() -> list[str]:
    return list(dict.fromkeys(variable(option.key.split(".")[0]) for option in options()))


def process_environment() -> Mapping[str, str]:
    """The environment of this process, for whoever calls `load`."""
    return os.environ  # noqa: TID251 - the one place of the gateway that reads it
