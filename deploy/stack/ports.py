"""Which ports the stack takes: the usual ones where they are free, else any."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from deploy.stack.layout import LOOPBACK, Ports

GATEWAYS = (8001, 8002)
ENGINES = (8101, 8102)


class PortTaken(Exception):
    """Says what to do about it."""


def choose(edge: int) -> Ports:
    """Raises PortTaken if the edge's own cannot be had; all others have another instead."""
    if not _free(edge):
        why = "is taken, or below 1024 and you are not root"
        raise PortTaken(f"port {edge} {why}: `make stack PORT=8080`")
    return Ports(
        edge=edge,
        gateways=_all(GATEWAYS),
        engines=_all(ENGINES),
        valkey=_one(6379),
        prometheus=_one(9090),
        alertmanager=_one(9093),
        node=_one(9100),
        sink=_one(9099),
    )


def _all(wished: Sequence[int]) -> tuple[int, ...]:
    return tuple(_one(port) for port in wished)


def _one(wished: int) -> int:
    return wished if _free(wished) else _any()


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _any() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
