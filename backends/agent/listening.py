"""Where control APIs listen (private Unix sockets; TCP ports that demand a token) and what serves them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

MIN_TOKEN_CHARS = 16
"""Of a token that opens a TCP port: shorter ones are guessed."""


class AlreadyRunning(RuntimeError):
    """Another agent answers on this control socket."""


class ControlOpen(ValueError):
    """A control port would be open to everyone, or its address is none; the message says what to set."""


class ControlServer(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    def __init__(self, application: ASGIApp) -> None:
        super().__init__(uvicorn.Config(application, lifespan="off", log_config=None, access_log=False))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind_private(path: Path) -> socket.socket:
    """A listening Unix socket that only this user can reach. A file left by a dead agent is replaced.

    Raises AlreadyRunning if someone answers there.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
        else:
            raise AlreadyRunning(f"a backend already runs at {path}: stop it, or set another `run_dir`")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen()
    listening.setblocking(False)
    return listening


def bind_tcp(address: str, token: str) -> socket.socket:
    """A listening TCP socket at `host:port`. Raises ControlOpen; OSError where the address cannot be had."""
    host, port = split_address(address)
    if len(token) < MIN_TOKEN_CHARS:
        raise ControlOpen(
            f"--control-listen {address}: whoever reaches this port could change the weights: set "
            f"`admin.control_token` or CHANGEOVER_CONTROL_TOKEN to a secret of {MIN_TOKEN_CHARS} characters "
            "or more, here and for the gateway"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    listening.setblocking(False)
    return listening


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[::1]:port`; `:port` is every address. Raises ControlOpen."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ControlOpen(f"{address} is no address: write host:port, as 0.0.0.0:9001")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)
