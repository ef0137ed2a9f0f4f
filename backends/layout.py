"""Where the backends of one machine lie: sockets, logs, names. Pure: the same answer for whoever asks.

`changeover serve` starts them there, the gateway and `changeover status` find them there. All of it
is derived from the settings, so nothing has to be passed around. Folders are made by `backends.rundir`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH = 107
"""Bytes that a Unix socket's address holds on Linux (`sun_path`, less the closing zero)."""
TOKEN_FILE = "token"  # noqa: S105 (a file's name)


class PathTooLong(ValueError):
    """A socket would not fit into a Unix address; the message says what to set."""


@dataclass(frozen=True, slots=True)
class Place:
    """One backend's name, number and files."""

    name: str
    model: str
    index: int
    engine_socket: Path
    """The engine listens here: vLLM's HTTP surface behind the guard."""
    control_socket: Path
    """Its agent listens here."""
    log: Path
    """What the engine prints."""
    scratch: Path
    """The engine's temporary folder, with the sockets between its processes; emptied when it starts."""


def run_dir(configured: str | None, port: int, *, uid: int, temporary: Path) -> Path:
    """The folder for sockets: as configured, else one for this user and gateway port."""
    if configured:
        return Path(configured).absolute()
    return temporary / f"changeover-{uid}" / str(port)


def places(
    run_dir: Path, model: str, replicas: int, *, first: int = 0, logs: Path = Path("logs")
) -> tuple[Place, ...]:
    """The places of one model's backends, numbered from `first`. Raises PathTooLong."""
    return tuple(_place(run_dir, model, index, logs) for index in range(first, first + replicas))


def machine_places(
    run_dir: Path, models: Iterable[tuple[str, int]], *, logs: Path = Path("logs")
) -> dict[str, tuple[Place, ...]]:
    """The places of all models (name, replicas), numbered through in that order. Raises PathTooLong."""
    result: dict[str, tuple[Place, ...]] = {}
    first = 0
    for model, replicas in models:
        result[model] = places(run_dir, model, replicas, first=first, logs=logs)
        first += replicas
    return result


def token_file(run_dir: Path) -> Path:
    """Holds the token of all control paths of the backends there."""
    return run_dir / TOKEN_FILE


def _place(run_dir: Path, model: str, index: int, logs: Path) -> Place:
    name = f"backend-{index}"
    return Place(
        name=name,
        model=model,
        index=index,
        engine_socket=_socket(run_dir / f"{name}.sock"),
        control_socket=_socket(run_dir / f"{name}.ctl"),
        log=logs / f"{name}.log",
        scratch=run_dir / f"{name}.ipc",
    )


def _socket(path: Path) -> Path:
    length = len(str(path).encode())
    if length > MAX_SOCKET_PATH:
        raise PathTooLong(
            f"the socket path {path} is {length} bytes long, Unix allows {MAX_SOCKET_PATH}: set `run_dir` "
            f"to a shorter folder, e.g. /tmp/changeover-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"
        )
    return path
