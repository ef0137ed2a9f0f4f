"""Whether engines, trainer and published versions turn texts into the same ids. Reads files only."""

from __future__ import annotations

from pathlib import Path

from checkpoints.contents import read_contents
from checkpoints.errors import CheckpointError
from checkpoints.manifest import Digests
from checkpoints.store.open import open_store
from gateway.doctor import rules
from gateway.doctor.finding import Finding, note

_PARTS = (
    ("tokenizer", "the tokenizer"),
    ("special_tokens", "special tokens"),
    ("chat_template", "the chat template"),
)


def of_folder(folder: Path) -> Digests:
    """Raises CheckpointError, OSError."""
    return read_contents(folder).digests


def of_newest(url: str, model: str) -> tuple[int, Digests] | None:
    """The newest version's number and digests. Raises CheckpointError, OSError."""
    newest = open_store(url, model).newest()
    return None if newest is None else (newest.version, newest.digests)


def compare(one: str, left: Digests, other: str, right: Digests) -> Finding:
    """Name what differs; what one of them has not is no difference."""
    differences = []
    for part, name in _PARTS:
        mine, theirs = getattr(left, part), getattr(right, part)
        if mine is not None and theirs is not None and mine != theirs:
            differences.append(name)
    return rules.tokenizers(one, other, differences)


def check(engine: Path, trainer: Path | None, store: str | None, model: str) -> list[Finding]:
    """The engine's folder against the trainer's and the newest version's, as far as there are any."""
    try:
        own = of_folder(engine)
        found = []
        if trainer is not None:
            found.append(compare(f"engine {engine}", own, f"trainer {trainer}", of_folder(trainer)))
        newest = of_newest(store, model) if store is not None else None
        if newest is not None:
            found.append(compare(f"engine {engine}", own, f"version {newest[0]}", newest[1]))
    except (CheckpointError, OSError) as failure:
        return [note("tokenizer", f"cannot be compared: {failure}")]
    return found
