"""Tokens on an event stream, and when each of them came. Pure: the time is an argument.

A token is an event that carries text. Not counted: comments, `[DONE]`, the role that opens a chat, the
usage at the end. Several events in one read came at the same moment: buffering shows as gaps of 0.
"""

from __future__ import annotations

import re

_TEXT = re.compile(rb'"(?:text|content)": ?"[^"]')


class TokenTimes:
    """Feed it what is read; ask it afterwards."""

    __slots__ = ("_rest", "done", "failed", "first_at", "gaps", "last_at")

    def __init__(self) -> None:
        self.first_at: float | None = None
        self.last_at = 0.0
        self.gaps: list[float] = []
        self.done = False
        """`[DONE]` was seen: the stream is whole."""
        self.failed = False
        """An error event was seen."""
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.done = True
        elif data.startswith(b'{"error"'):
            self.failed = True
        elif _TEXT.search(data):
            if self.first_at is None:
                self.first_at = now
            else:
                self.gaps.append(now - self.last_at)
            self.last_at = now
