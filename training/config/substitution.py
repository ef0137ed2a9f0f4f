"""`${NAME}` and `${NAME:default}` in a training configuration. Pure.

The same rules as in the gateway's file: a variable that is set, even to nothing, wins over the default;
`$${` stands for a literal `${`; substituted text is not searched again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)(?::(?P<default>[^}]*))?\}|(?P<bad>\$\{)", re.ASCII)


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Replace all substitutions. Raises ValueError for the first that cannot be; it says what to do."""

    def replace(match: re.Match[str]) -> str:
        if match["bad"]:
            raise ValueError("`${` begins no ${NAME} or ${NAME:default}; write `$${` for a literal `${`")
        name = match["name"]
        if name is None:
            return "${"
        value = environment.get(name, match["default"])
        if value is None:
            raise ValueError(f"the environment has no {name}: set it, or give a default: ${{{name}:default}}")
        return value

    return _PART.sub(replace, text)
