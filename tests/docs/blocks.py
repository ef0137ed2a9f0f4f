"""What a page of Markdown holds: fenced blocks, words in code, and the commands among them. Pure."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.M | re.S)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SHELL = ("sh", "bash", "console", "")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block, without its indentation."""

    page: Path
    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    """In order."""
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(page, match["kind"], textwrap.dedent(match["text"])) for match in found]


def code_words(page: Path) -> set[str]:
    """What stands between single backticks."""
    return set(_CODE.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))))


def commands(page: Path) -> Iterator[str]:
    """Every line of a shell block that is a command, continued lines joined; and commands within the text."""
    for block in blocks(page):
        if block.kind in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.lstrip().startswith("#"):
                    yield line.strip()
    yield from code_words(page)


def words(command: str) -> list[str]:
    """As a shell reads them, comments left out; [] for what is no command line."""
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return []
