"""The images' recipes, judged by hadolint and by what each must say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from deploy.checks import beside
from deploy.stack.programs import ROOT

FOLDER = ROOT / "deploy" / "docker"
_INSTRUCTION = re.compile(r"^([A-Z]+)\s+((?:.*\\\n)*.*)$", re.MULTILINE)
_EXEC_FORM = re.compile(r"^(?:--\S+\s+)*(?:CMD\s+)?\[")


def recipes() -> list[Path]:
    return sorted(FOLDER.glob("*.Dockerfile"))


def check() -> tuple[int, list[str]]:
    """How many images there are, and what is wrong with them. Raises ProgramMissing."""
    return len(recipes()), list(_complaints())


def _complaints() -> Iterator[str]:
    done = beside.run("hadolint", ["--no-color", *map(str, recipes())])
    if done.returncode != 0:
        yield f"hadolint:\n{done.stdout}{done.stderr}"
    for recipe in recipes():
        for complaint in judge(recipe.read_text()):
            yield f"{recipe.name}: {complaint}"


def judge(text: str) -> Iterator[str]:
    """What a recipe lacks that hadolint does not ask for."""
    said: dict[str, list[str]] = {}
    for name, value in _INSTRUCTION.findall(text):
        said.setdefault(name, []).append(value.replace("\\\n", " ").strip())
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", said.get("USER", [""])[-1]):
        yield "should end as a user by number that is not root"
    if said.get("STOPSIGNAL") != ["SIGTERM"]:
        yield "should say STOPSIGNAL SIGTERM"
    for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        for value in said.get(name, ()):
            if not _EXEC_FORM.match(value):
                yield f"{name} should be in exec form: a shell would keep the signals"
    if any("curl" in value or "wget" in value for value in said.get("HEALTHCHECK", ())):
        yield "a slim image has neither curl nor wget"
    if "HEALTHCHECK" not in said and "EXPOSE" in said:
        yield "listens, and has no HEALTHCHECK"
    defaults = dict(part.split("=", 1) for part in said.get("ARG", ()) if "=" in part)
    for value in said.get("FROM", ()):
        image = value.split()[0]
        for name, default in defaults.items():
            image = image.replace("${" + name + "}", default)
        if not re.search(r":v?\d+\.\d+", image):
            yield f"FROM {image}: no version"
