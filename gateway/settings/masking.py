"""Values of the configuration as they may be shown: secrets are replaced by MASK. Pure."""

from __future__ import annotations

import re
from enum import Enum

from pydantic import SecretStr

from backends.settings import Section
from gateway.settings.options import is_secret
from gateway.settings.origin import Place

MASK = "********"
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET_ARGUMENT = re.compile(r"^--[\w-]*(key|token|password|secret)[\w-]*$", re.IGNORECASE)


def without_passwords(text: str) -> str:
    """`redis://user:password@host` without user and password."""
    return _PASSWORD_IN_URL.sub(f"{MASK}@", text)


def shown(value: object, path: Place) -> object:
    """The value at a place as plain JSON-like data: sections are mappings, secrets are masked."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, SecretStr) or is_secret(path):
        return MASK
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Section):
        return {key: shown(getattr(value, key), (*path, key)) for key in type(value).model_fields}
    if isinstance(value, dict):
        return {str(key): shown(below, (*path, str(key))) for key, below in value.items()}
    if isinstance(value, tuple):
        return _arguments([shown(below, (*path, index)) for index, below in enumerate(value)])
    return without_passwords(str(value))


def _arguments(values: list[object]) -> list[object]:
    """Mask what follows an argument like `--api-key`."""
    result: list[object] = []
    secret_next = False
    for value in values:
        name, separator, _ = value.partition("=") if isinstance(value, str) else ("", "", "")
        is_name = _SECRET_ARGUMENT.match(name) is not None
        result.append(MASK if secret_next else f"{name}={MASK}" if is_name and separator else value)
        secret_next = is_name and not separator
    return result
