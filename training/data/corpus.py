"""The small corpus for demonstrations: Python's language reference, as it comes with Python itself.

The standard library's package `pydoc_data` holds the reference as plain text (what `help("assert")`
shows). Copyright Python Software Foundation, licence PSF-2.0; nothing of it is kept in this repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from training.data.errors import DataError

BUILTIN_PREFIX = "builtin:"
NAME = f"{BUILTIN_PREFIX}python-reference"
SHORTEST = 80
"""Characters; shorter paragraphs are headings and crumbs."""
_MARKUP = re.compile(r"^(\*{3,}|={3,}|-{3,}|~{3,})$", re.MULTILINE)


def write_corpus(location: str, folder: Path) -> Path:
    """Write the corpus as JSON lines, if it is not there; returns the file. Raises DataError."""
    if location != NAME:
        raise DataError(f"data.path: {location}: the one built-in corpus is {NAME}")
    target = folder / "python-reference.jsonl"
    if not target.exists():
        from pydoc_data.topics import topics

        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / ".python-reference.partial"
        partial.write_bytes(b"\n".join(msgspec.json.encode({"text": text}) for text in paragraphs(topics)))
        partial.rename(target)
    return target


def paragraphs(topics: Mapping[str, str]) -> list[str]:
    """Paragraphs of all topics in the order of their names, without headings; each once."""
    found = [
        " ".join(paragraph.split())
        for name in sorted(topics)
        for paragraph in _MARKUP.sub("", topics[name]).split("\n\n")
        if not paragraph.startswith("   ")
    ]
    return [text for text in dict.fromkeys(found) if len(text) >= SHORTEST]
