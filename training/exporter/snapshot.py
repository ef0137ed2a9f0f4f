"""What waits to be published: weights of one step, held in memory, and how to write them. No torch here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checkpoints.manifest import WeightsKind


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Weights after `step`."""

    step: int
    kind: WeightsKind
    write: Callable[[Path], None] = field(repr=False)
    """Writes a folder in the Hugging Face layout; may raise OSError."""
    metrics: Mapping[str, float] = field(default_factory=dict)


class Waiting:
    """Room for one snapshot: the newest wins. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: Snapshot | None = None
        self._closed = False

    def put(self, snapshot: Snapshot) -> Snapshot | None:
        """Wait for the publisher; returns the one that makes room, which will not be published."""
        with self._changed:
            dropped, self._next = self._next, snapshot
            self._changed.notify_all()
            return dropped

    def drop(self) -> Snapshot | None:
        """Make room before a new one is copied, so that no more than two are ever in memory."""
        with self._changed:
            dropped, self._next = self._next, None
            return dropped

    def take(self) -> Snapshot | None:
        """The next one, waiting for it; None: it is closed, and nothing waits any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._closed)
            taken, self._next = self._next, None
            return taken

    def newer(self, timeout_s: float) -> bool:
        """Whether something waits, looking for that long; comes back at once when it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._closed, timeout_s)
            return self._next is not None

    def close(self) -> None:
        """Nothing more comes; what waits is still taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Nothing more comes."""
        return self._closed

    def __len__(self) -> int:
        return 0 if self._next is None else 1
