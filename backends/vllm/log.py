"""What an engine prints: relayed to a file that rotates, its last lines kept for messages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from logging.handlers import RotatingFileHandler
from pathlib import Path

from backends.vllm.reasons import phase

MAX_BYTES = 20 * 1024 * 1024
FILES = 3
"""Old log files that are kept beside the current one."""
TAIL_LINES = 400
"""Enough for the stack traces of an engine and its workers, one after the other."""
CHUNK_BYTES = 64 * 1024
MAX_LINE_CHARS = 4000


class EngineLog:
    """One engine's log over all its runs."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handler = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=FILES, encoding="utf-8")
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.phase = ""
        """What the engine is at while it starts, for people."""

    def begin(self, command: tuple[str, ...]) -> None:
        """A new run begins: forget the last one's lines."""
        self.tail.clear()
        self.phase = "starting"
        self._write(f"--- {' '.join(command)}")

    async def relay(self, stream: asyncio.StreamReader) -> None:
        """Take lines until the stream ends."""
        rest = ""
        while chunk := await stream.read(CHUNK_BYTES):
            *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
            rest = rest[-MAX_LINE_CHARS:]
            for line in lines:
                self._take(line.rsplit("\r", 1)[-1][:MAX_LINE_CHARS])
        if rest:
            self._take(rest)

    def close(self) -> None:
        self._handler.close()

    def _take(self, line: str) -> None:
        self.tail.append(line)
        self.phase = phase(line) or self.phase
        self._write(line)

    def _write(self, line: str) -> None:
        self._handler.emit(logging.LogRecord("engine", logging.INFO, "", 0, line, None, None))
