"""What is wrong with a configuration: all of it, in one exception.

Messages never repeat the value of a secret option, nor anything that was substituted from the environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gateway.settings.origin import Origin, Source

NEAR = 0.6
"""How alike two keys must be (difflib's ratio) for one to be suggested for the other."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `str()` is the line that people are shown."""

    origin: Origin
    key: str
    """Dotted key, as `models.0.name`; empty: the configuration as a whole."""
    what: str
    suggestion: str = ""
    """The nearest valid key or the allowed values; may be empty."""

    @property
    def file(self) -> str | None:
        return self.origin.name if self.origin.source is Source.FILE else None

    @property
    def line(self) -> int | None:
        return self.origin.line or None

    def __str__(self) -> str:
        parts = [self.origin.place] + ([self.key] if self.key else []) + [self.what]
        return ": ".join(parts) + (f"; {self.suggestion}" if self.suggestion else "")


class SettingsError(Exception):
    """The configuration cannot be used. `problems` is never empty; `str()` has a line for each.

    In the order of the file's lines, then environment, then flags.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=_order))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _order(problem: Problem) -> tuple[int, int]:
    return list(Source).index(problem.origin.source), problem.origin.line


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice most like `word`, whatever its case and however its words are joined; None: none is."""
    by_form = {_form(choice): choice for choice in choices}
    found = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=NEAR)
    return by_form[found[0]] if found else None


def _form(word: str) -> str:
    """`maxBatchSize`, `max-batch-size` and `max_batch_size` are the same word."""
    return word.replace("_", "").replace("-", "").lower()


def problems_json(error: SettingsError) -> bytes:
    """For programs: `{"problems": [{"file", "line", "key", "what", "suggestion", "origin"}]}`."""
    problems = [
        {
            "file": problem.file,
            "line": problem.line,
            "key": problem.key,
            "what": problem.what,
            "suggestion": problem.suggestion,
            "origin": problem.origin.place,
        }
        for problem in error.problems
    ]
    return msgspec.json.format(msgspec.json.encode({"problems": problems}), indent=2)
