"""Who asks: API keys, known only by their SHA-256.

A key is looked up by its digest and the digests are compared in constant time, so the time it takes
says nothing about a key. Without configured keys everyone may ask.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from gateway.errors import Unauthorized
from gateway.settings.tree import Key

MAX_KEY_BYTES = 512
"""Longer tokens are refused unhashed."""


class Keys:
    """The configured keys."""

    __slots__ = ("_by_digest",)

    def __init__(self, keys: Sequence[Key]) -> None:
        self._by_digest: dict[str, Key] = {}
        self.replace(keys)

    def replace(self, keys: Sequence[Key]) -> None:
        self._by_digest = {key.sha256: key for key in keys}

    def __bool__(self) -> bool:
        """Whether any keys are configured."""
        return bool(self._by_digest)

    def identify(self, authorization: bytes) -> Key | None:
        """The key's settings, None if no keys are configured. Raises Unauthorized."""
        if not self._by_digest:
            return None
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token or len(token) > MAX_KEY_BYTES:
            raise Unauthorized("Give your API key as `Authorization: Bearer <key>`.")
        digest = hashlib.sha256(token).hexdigest()
        key = self._by_digest.get(digest)
        if key is None or not hmac.compare_digest(key.sha256, digest):
            raise Unauthorized("This API key is not known here.")
        return key
