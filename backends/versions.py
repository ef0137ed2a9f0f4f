"""How weights are called: the label that stands in `x-model-version`, in caches and in metrics. Pure.

`base-<8 hex>` names what an engine was first launched with (`backends.models.version`); `v7-<8 hex>` names
version 7 of the checkpoint store, with the beginning of its content digest, so that a store that was made
anew under the same name does not give old answers for new weights.
"""

from __future__ import annotations

import re

BASE = 0
"""The number of the base model: before every published version."""
DIGEST_DIGITS = 8

_LABEL = re.compile(r"v([1-9][0-9]{0,9})-[0-9a-f]{8}")
_NUMBER = re.compile(r"v?([0-9]{1,10})")


def label_of(number: int, digest: str) -> str:
    """The label of a published version; `digest` is its manifest's."""
    return f"v{number}-{digest[:DIGEST_DIGITS]}"


def number_of(label: str) -> int | None:
    """The version's number; BASE for a base model, None for a label that is of neither form."""
    if label.startswith("base-"):
        return BASE
    found = _LABEL.fullmatch(label)
    return int(found[1]) if found else None


def asked_number(text: str) -> int | None:
    """The number that a client or an operator wrote: `7`, `v7` or a whole label. None: it is no number."""
    found = _NUMBER.fullmatch(text)
    return int(found[1]) if found else number_of(text)
