"""Answers kept in this process: bounded in bytes, the least recently used go first. Pure."""

from __future__ import annotations

from collections import OrderedDict

from gateway.flow.cache.entry import Entry


class Memory:
    """Times in milliseconds since 1970, as in the entries."""

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        self._max_bytes = max_bytes
        self._ttl_ms = ttl_s * 1000
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Memory {len(self)} answers, {self.bytes}/{self._max_bytes} bytes>"

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now_ms - entry.kept_ms > self._ttl_ms:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, entry: Entry) -> int:
        """Keep it, unless it alone is too big. Returns how many others had to go."""
        if entry.size > self._max_bytes:
            return 0
        self._drop(key)
        self._entries[key] = entry
        self.bytes += entry.size
        gone = 0
        while self.bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= oldest.size
            gone += 1
        return gone

    def clear(self) -> int:
        """Forget everything. Returns how many answers that was."""
        count = len(self._entries)
        self._entries.clear()
        self.bytes = 0
        return count

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry.size
