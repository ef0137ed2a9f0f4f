"""What the set-up shows: one numbered line a step, with the last line of pip's output live below it.

On something that is not a terminal: one plain line when a step begins and one when it ends. The whole
output of every command goes to the log file. Used by deploy/setup.py only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TAIL_LINES = 15
"""Lines of a failed command that are shown; the rest is in the log."""


class Progress:
    def __init__(self, name: str, total: int, log: Path) -> None:
        self._name = name
        self._total = total
        self._log = log
        self._live = sys.stdout.isatty()
        self._label = ""
        self._started = time.monotonic()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @contextmanager
    def step(self, number: int, title: str) -> Iterator[None]:
        self._label = f"[{self._name} {number}/{self._total}] {title}"
        began = time.monotonic()
        if not self._live:
            print(f"{self._label} ...", flush=True)
        self._draw("")
        yield
        self._print(f"{self._label}  ({time.monotonic() - began:.1f} s)")

    def run(self, command: Sequence[str], cwd: Path) -> int:
        """Run a command with its output in the log; returns its exit code. Ctrl-C ends it with us."""
        self._tail.clear()
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            with process:
                for line in process.stdout or ():
                    text = line.decode(errors="replace").rstrip()
                    log.write(text + "\n")
                    if text.strip():
                        self._tail.append(text.rsplit("\r", 1)[-1])
                        self._draw(self._tail[-1])
        return process.returncode

    def note(self, text: str) -> None:
        self._print(f"    {text}")

    def tail(self) -> str:
        return "\n".join(f"    | {line}" for line in self._tail)

    def finished(self, text: str) -> None:
        self._print(f"[{self._name}] {text} after {time.monotonic() - self._started:.0f} s")

    def _print(self, text: str) -> None:
        print(("\r\x1b[K" if self._live else "") + text, flush=True)

    def _draw(self, detail: str) -> None:
        if not self._live:
            return
        width = shutil.get_terminal_size().columns
        elapsed = f"{time.monotonic() - self._started:4.0f} s"
        line = f"{self._label}  {elapsed}  {detail.strip()}"[: width - 1]
        print("\r\x1b[K" + line, end="", flush=True)
