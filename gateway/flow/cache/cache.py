"""The cache of one worker: memory, Redis, or memory in front of Redis.

`find` and `put` are synchronous; `look_up` asks Redis and calls back. What is kept under a key is the
caller's business (`gateway.flow.sharing`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.flow.cache.entry import Entry
from gateway.flow.cache.memory import Memory
from gateway.flow.cache.redis_store import RedisStore, Then
from gateway.observe.handles import Gauge

MAX_ANSWER_BYTES = 1024 * 1024
"""A larger answer is not kept: it would push out a thousand others."""


def now_ms() -> int:
    """The clock of entries."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Stats:
    """What `changeover cache stats` shows."""

    memory_entries: int
    """Of the worker that answers."""
    memory_bytes: int
    redis_in_use: bool | None
    """None: no Redis is configured."""
    redis_entries: int | None
    """None: none is configured, or it does not answer."""

    def as_dict(self) -> dict[str, int | bool | None]:
        return asdict(self)


class Cache:
    """Either store may be absent."""

    def __init__(
        self,
        memory: Memory | None,
        remote: RedisStore | None,
        bytes_gauge: Gauge,
        entries_gauge: Gauge,
        signal: Path,
        evicted: Callable[[int], None],
    ) -> None:
        """`signal`: a file that is touched to have every worker on this machine clear its memory."""
        self._memory = memory
        self.remote = remote
        self._bytes_gauge = bytes_gauge
        self._entries_gauge = entries_gauge
        self._signal = signal
        self._signalled = _touched(signal)
        self._evicted = evicted

    @property
    def entries(self) -> int:
        """Answers in memory."""
        return len(self._memory) if self._memory is not None else 0

    def find(self, key: bytes) -> Entry | None:
        """From memory."""
        return self._memory.get(key, now_ms()) if self._memory is not None else None

    def look_up(self, key: bytes, then: Then) -> None:
        """From Redis, into memory. `then` may be called at once. Only where `remote` is."""
        assert self.remote is not None

        def found(entry: Entry | None) -> None:
            if entry is not None:
                self._remember(key, entry)
            then(entry)

        self.remote.get(key, found)

    def put(self, key: bytes, entry: Entry) -> bool:
        """Keep an answer. False if it is too big."""
        if len(entry.body) > MAX_ANSWER_BYTES:
            return False
        self._remember(key, entry)
        if self.remote is not None:
            self.remote.put(key, entry)
        return True

    def _remember(self, key: bytes, entry: Entry) -> None:
        memory = self._memory
        if memory is not None:
            gone = memory.put(key, entry)
            if gone:
                self._evicted(gone)
            self._show()

    def _show(self) -> None:
        if self._memory is not None:
            self._bytes_gauge.set(self._memory.bytes)
            self._entries_gauge.set(len(self._memory))

    # For operators

    async def stats(self) -> Stats:
        memory, remote = self._memory, self.remote
        return Stats(
            self.entries,
            memory.bytes if memory is not None else 0,
            remote.answers if remote is not None else None,
            await remote.count() if remote is not None else None,
        )

    async def clear(self) -> Stats:
        """Forget all answers, in Redis and in every worker on this machine. Returns what there was."""
        memory, remote = self._memory, self.remote
        size = memory.bytes if memory is not None else 0
        entries = memory.clear() if memory is not None else 0
        self._show()
        self._signal.touch()
        self._signalled = _touched(self._signal)
        cleared = await remote.clear() if remote is not None else None
        return Stats(entries, size, remote.answers if remote is not None else None, cleared)

    def heed_signal(self) -> None:
        """Clear the memory if another worker was told to. About once a second."""
        touched = _touched(self._signal)
        if touched != self._signalled:
            self._signalled = touched
            if self._memory is not None:
                self._memory.clear()
                self._show()


def _touched(signal: Path) -> int:
    try:
        return signal.stat().st_mtime_ns
    except OSError:
        return 0
