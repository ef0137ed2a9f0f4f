"""Where a value of the configuration came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Place = tuple[str | int, ...]
"""Place in the settings tree: keys and, inside lists, indices from 0."""


class Source(StrEnum):
    """In the order of precedence, the weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that values come from. `str()` is what people are shown."""

    source: Source
    name: str = ""
    """The file, the environment variable or the flag's key."""
    line: int = 0
    """Line in the file, from 1; 0: the file as a whole."""
    variables: tuple[str, ...] = ()
    """Environment variables that stand in the value as `${NAME}`."""

    @property
    def place(self) -> str:
        """Without the variables."""
        match self.source:
            case Source.FILE:
                return f"{self.name}:{self.line}" if self.line else self.name
            case Source.ENVIRONMENT:
                return f"environment {self.name}"
            case Source.FLAG:
                return f"flag --set {self.name}"
            case Source.DEFAULT:
                return "default"

    def __str__(self) -> str:
        return " ".join([self.place, *(f"${{{name}}}" for name in self.variables)])


DEFAULT = Origin(Source.DEFAULT)


def dotted(path: Place) -> str:
    """`("models", 0, "name")` as `models.0.name`."""
    return ".".join(str(part) for part in path)
