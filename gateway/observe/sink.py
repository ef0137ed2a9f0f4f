"""Where log lines go: a bounded buffer, and one thread that writes it out.

Whoever logs never waits: if nobody reads the output, lines are dropped and counted, and the output says
how many as soon as it takes lines again. Lines of a moment leave in one write. `close` writes what is
left, for a limited time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

MAX_LINES = 20_000
MAX_BYTES = 16 * 1024 * 1024
GATHER_S = 0.02
"""Lines wait this long for others, so that a busy gateway wakes the thread fifty times a second at most."""


def _uncounted(lines: int) -> None:
    pass


class Sink:
    """Any thread may `put`. Writes to a duplicate of the descriptor: its owner may close it at any time."""

    def __init__(self, fd: int, *, dropped: Callable[[int], None] = _uncounted) -> None:
        """`dropped` is told of lost lines, on the thread that lost them."""
        self._fd = os.dup(fd)
        self.dropped = dropped
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0
        self._guard = threading.Lock()
        self._some = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-sink", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Take a line that ends in a newline. Never waits for the output."""
        with self._guard:
            full = len(self._lines) >= MAX_LINES or self._bytes + len(line) > MAX_BYTES
            if full:
                self._lost += 1
            else:
                self._lines.append(line)
                self._bytes += len(line)
        if full:
            self.dropped(1)
        elif not self._some.is_set():
            self._some.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is left, for at most `timeout_s`. Idempotent; lines put later are lost."""
        self._ending.set()
        self._some.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._drain()
        finally:
            os.close(self._fd)

    def _drain(self) -> None:
        """Until the end, or until the output is gone."""
        while not (self._ending.is_set() and not self._lines):
            self._some.wait()
            self._ending.wait(GATHER_S)
            self._some.clear()
            if not self._write(self._take()):
                return

    def _take(self) -> bytes:
        with self._guard:
            lines, self._lines = self._lines, deque()
            self._bytes = 0
            lost, self._lost = self._lost, 0
        if lost:
            lines.append(b"(%d log lines were lost: nobody read the output)\n" % lost)
        return b"".join(lines)

    def _write(self, data: bytes) -> bool:
        """Write all of it, however long that takes. False if the output is gone for good."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # Somebody made the descriptor non-blocking.
                if self._ending.wait(GATHER_S):
                    return False
            except OSError:
                return False
        return True
