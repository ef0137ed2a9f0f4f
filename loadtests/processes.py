"""Servers under test as child processes: started on a core, awaited, measured from /proc, ended.

Processor time and memory are those of the whole tree of processes, so a server with workers or helpers
pays for all of them. Linux only, as its /proc is read.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from loadtests.environment import ROOT

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOGS = ROOT / "logs" / "loadtests"
END_GRACE_S = 10.0


class ServerFailed(RuntimeError):
    """A server ended or did not become ready; says why, with the end of its log."""


class Server:
    """A running child with everything below it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor seconds that its processes have used so far."""
        return tree_cpu_s(self.pid)

    def rss_mb(self) -> float:
        """Memory that its processes hold, in MB (10⁶ bytes); what they share counts once for each."""
        return sum(_rss_bytes(pid) for pid in family(self.pid)) / 1e6

    def wait_ready(self, port: int, path: str = "/health", within_s: float = 60.0) -> None:
        """Until GET of `path` answers 200; an empty path: until it accepts. Raises ServerFailed."""
        deadline = time.monotonic() + within_s
        said = "refused"
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended with {self._process.returncode}: {self.last_words()}")
            said = _get(port, path) if path else _connect(port)
            if said == "200":
                return
            time.sleep(0.1)
        raise ServerFailed(
            f"{self.name}: {path or 'its port'} said {said} for {within_s:g} s: {self.last_words()}"
        )

    def last_words(self) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace").strip()
        return text[-400:].replace("\n", " | ") if text else "nothing in its log"

    def stop(self) -> None:
        """End the whole process group: SIGTERM, and SIGKILL after a while."""
        pids = family(self.pid)
        self.go_on()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(END_GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        for pid in pids[1:]:
            _end(pid)

    def pause(self) -> None:
        """Stop its processes where they are, so that they take nothing from what is measured."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return


def start(
    name: str,
    command: Sequence[str],
    *,
    core: int | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> Server:
    """Start a server, on one core if given; its output goes to logs/loadtests/NAME.log."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    more = [f"{key}={value}" for key, value in (environment or {}).items()]
    argv = ["env", *more, *command] if more else list(command)
    if core is not None:
        argv = ["taskset", "-c", str(core), *argv]
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise ServerFailed(f"{name}: {argv[0]}: {error.strerror}") from error
    return Server(name, process, log)


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    path: str = "/health",
    core: int | None = None,
    environment: Mapping[str, str] | None = None,
    within_s: float = 60.0,
) -> Iterator[Server]:
    """A server that is ready within the block. Raises ServerFailed."""
    server = start(name, command, core=core, environment=environment)
    try:
        server.wait_ready(port, path, within_s)
        yield server
    finally:
        server.stop()


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the program as Ctrl-C does, so that no server outlives it."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def free_ports(count: int) -> list[int]:
    """TCP ports that are free now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def cores() -> tuple[int, int]:
    """A core for the server and one for the load: the first two, or the same twice."""
    known = sorted(os.sched_getaffinity(0))
    return known[0], known[-1 if len(known) == 1 else 1]


def family(pid: int) -> list[int]:
    """A process and all its descendants that live."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = _stat(int(entry.name))
            if fields:
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def tree_cpu_s(pid: int) -> float:
    """Processor seconds of a process and all below it so far, in steps of 10 ms."""
    return sum(_cpu_s(each) for each in family(pid))


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on (proc(5) counts it as the third). Empty: it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def _rss_bytes(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[21]) * PAGE_BYTES if fields else 0


def alive(pid: int) -> bool:
    """Whether it runs: one that only waits to be reaped does not."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def _end(pid: int) -> None:
    """What outlived its leader has a moment to end by itself."""
    deadline = time.monotonic() + END_GRACE_S
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    if alive(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _connect(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return "200"
    except OSError as error:
        return type(error).__name__


def _get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()
