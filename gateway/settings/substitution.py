"""`${NAME}` and `${NAME:default}` in the configuration file. Pure.

A name is a letter or `_`, then letters, digits and `_`. The default is everything up to the next `}`. A
variable that is set, even to nothing, wins over the default. `$${` stands for a literal `${`. Substituted
text is not searched again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_PART = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<default>[^}]*))?\}|(?P<bad>\$\{)")


@dataclass(frozen=True, slots=True)
class Substituted:
    text: str = field(repr=False)
    variables: tuple[str, ...]
    """Names that were replaced, in order."""
    whole: bool
    """The value was one substitution and nothing else."""


class SubstitutionError(ValueError):
    """Something could not be replaced; the message names it and says what to do."""


def substitute(text: str, environment: Mapping[str, str]) -> Substituted:
    """Replace all substitutions in `text`. Raises SubstitutionError for the first that cannot be."""
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["bad"]:
            raise SubstitutionError(
                "`${` begins no ${NAME} or ${NAME:default}; write `$${` for a literal `${`"
            )
        name, default = match["name"], match["default"]
        if name is None:
            return "${"
        if default is not None and "${" in default:
            raise SubstitutionError(
                f"the default of ${{{name}}} holds another substitution; they do not nest"
            )
        value = environment.get(name, default)
        if value is None:
            raise SubstitutionError(
                f"the environment has no {name}; set it, or give a default: ${{{name}:default}}"
            )
        names.append(name)
        return value

    replaced = _PART.sub(replace, text)
    match = _PART.fullmatch(text)
    return Substituted(replaced, tuple(names), whole=match is not None and match["name"] is not None)
