"""A kept answer, as it is in memory and in Redis."""

from __future__ import annotations

import msgspec

OVERHEAD_BYTES = 400
"""What an entry costs beside its body: object, key, place in a dictionary."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An engine's answer, byte for byte, in the form in which it came."""

    version: bytes
    """Of the weights that computed it."""
    kept_ms: int
    """When it was stored: milliseconds since 1970, for all machines that share it."""
    form: int
    """A `gateway.flow.cache.key.Form`."""
    chat: bool
    """Whether it is a chat's answer, or a completion's."""
    body: bytes
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def size(self) -> int:
        return len(self.body) + len(self.version) + OVERHEAD_BYTES

    def age_s(self, now_ms: int) -> float:
        """Never negative, though clocks of machines differ."""
        return max(0, now_ms - self.kept_ms) / 1000


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def decode(data: bytes) -> Entry | None:
    """None for bytes that another version of this program wrote, or somebody else."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return None
