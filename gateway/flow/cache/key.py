"""What makes two requests the same: the key of an answer. Pure.

The key is a BLAKE2b digest of tenant, model, the engine's path, the whole body in a canonical form, and the
version of the weights. The canonical form sorts the keys and writes 1.0 as 1; it leaves out nothing but
`stream` and `stream_options`, which change an answer's form and not what it says, and so a field that
nobody here knows makes another key. `user` stays in: who names the people behind a key sets them apart on
purpose. As the key is made of what the engine gets, /predict and /v1/completions share answers.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from math import isinf
from typing import Any, NamedTuple

import msgspec

DIGEST_BYTES = 20
"""Collisions are out of reach, by chance and by intent."""

_EXACT = 1 << 53
"""Above it a float no longer names one whole number."""


class Form(IntEnum):
    """The form in which an answer is asked for, or kept."""

    WHOLE = 0
    """One JSON object."""
    STREAM = 1
    STREAM_WITH_USAGE = 2
    """The last event before the end holds the usage."""
    STREAM_WITH_USAGES = 3
    """Every event does (`continuous_usage_stats`)."""


class Question(NamedTuple):
    """What is asked, whoever is going to answer it."""

    digest: bytes
    """Of everything but the version."""
    form: Form

    @property
    def same_bytes(self) -> bytes:
        """Equal for those who want the very same bytes of the engine."""
        return self.digest + bytes((self.form,))


def question(tenant: str, model: str, path: bytes, body: bytes, stream: bool) -> Question | None:
    """None for a body that cannot be compared: not strict JSON, or of a strange form."""
    try:
        fields = _decode(body)
        if not isinstance(fields, dict):
            return None
        form = _form(stream, fields.pop("stream_options", None))
        fields.pop("stream", None)
        canonical = _encode(fields)
    except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return None
    if form is None:
        return None
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in (tenant.encode(), model.encode(), path):
        digest.update(b"%d:%b" % (len(part), part))
    digest.update(canonical)
    return Question(digest.digest(), form)


def at_version(digest: bytes, version: bytes) -> bytes:
    """The key of the answer that these weights give."""
    return hashlib.blake2b(version, key=digest, digest_size=DIGEST_BYTES).digest()


def _number(text: str) -> int | float:
    value = float(text)
    if isinf(value):
        raise ValueError("beyond what a float holds")
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


_decode = msgspec.json.Decoder(float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def _form(stream: bool, options: Any) -> Form | None:
    if not stream:
        # The engine refuses options for a stream that is none: that is its to say.
        return Form.WHOLE if options is None else None
    if options is None:
        return Form.STREAM
    if not isinstance(options, dict) or not options.keys() <= {"include_usage", "continuous_usage_stats"}:
        return None
    if not all(isinstance(value, bool | None) for value in options.values()):
        return None
    if not options.get("include_usage"):
        return Form.STREAM
    return Form.STREAM_WITH_USAGES if options.get("continuous_usage_stats") else Form.STREAM_WITH_USAGE
