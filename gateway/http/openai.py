"""The OpenAI routes: a glance at the body, which then goes to the engine byte for byte.

Only what placing the request needs is looked at, and nothing is refused that the engine would take: a
field of a strange type is the engine's to judge.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import BadRequest
from gateway.http.bodies import read_object
from gateway.http.routes import HotRoute

BYTES_PER_TOKEN = 4
"""A rough figure for text in JSON; estimates only weigh requests against each other."""

DEFAULT_ANSWER_TOKENS = 256
"""What a request is taken to generate that names no limit."""


class Glance(msgspec.Struct):
    """The fields that placing a request needs, unread where their type does not matter."""

    model: Any = None
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    temperature: Any = None
    seed: Any = None
    user: Any = None
    prompt: msgspec.Raw = msgspec.Raw(b"")
    messages: msgspec.Raw = msgspec.Raw(b"")
    input: msgspec.Raw = msgspec.Raw(b"")

    @property
    def streams(self) -> bool:
        """As pydantic reads a bool, which is how the engine does."""
        value = self.stream
        if value is None or value is False:
            return False
        return value is True or value == 1 or (isinstance(value, str) and value.lower() in _TRUE)

    @property
    def text(self) -> msgspec.Raw:
        """The JSON of whatever is the prompt."""
        return self.messages or self.prompt or self.input

    def tokens(self, generates: bool) -> int:
        """Estimate of prompt plus answer."""
        prompt = len(self.text) // BYTES_PER_TOKEN + 1
        if not generates:
            return prompt
        limit = self.max_tokens
        if limit is None:
            limit = self.max_output_tokens
        if self.max_completion_tokens is not None:
            limit = self.max_completion_tokens
        if not isinstance(limit, int) or not 0 < limit < 1 << 31:
            limit = DEFAULT_ANSWER_TOKENS
        copies = self.n
        if copies is None or not isinstance(copies, int) or not 0 < copies < 1 << 16:
            return prompt + limit
        return prompt + limit * copies


_TRUE = frozenset(("true", "t", "yes", "y", "on", "1"))
_decode = msgspec.json.Decoder(Glance).decode


def glance(body: bytes) -> Glance:
    """Look at a body. Raises BadRequest if it is not a JSON object."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _glance_leniently(body)


def _glance_leniently(body: bytes) -> Glance:
    fields = read_object(body)
    known = {name: fields[name] for name in ("model", "stream", "max_tokens", "n", "user") if name in fields}
    text = fields.get("messages") or fields.get("prompt") or fields.get("input")
    return Glance(**known, prompt=msgspec.Raw(repr(text).encode("utf-8", "replace")))


def session_of(body: bytes, keys: tuple[str, ...], user: object) -> str:
    """The session that one of the body's keys names; `user` has been read already."""
    if keys == ("user",):
        return user if isinstance(user, str) else ""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        fields = read_object(body)
    named = [fields[key] for key in keys if isinstance(fields.get(key), str)]
    return named[0] if named else ""


def check_model(value: Any, route: HotRoute) -> str:
    """The model's name. Raises BadRequest where no engine could read it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise BadRequest(f"`model` must be a string on {route.path.decode()}.", param="model")
