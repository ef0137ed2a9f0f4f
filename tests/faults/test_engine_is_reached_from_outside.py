"""Whoever reaches an engine's own port gets past quotas, keys and the record: there is none to reach."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.engines import EnginesUnderTest

LISTENS = "0A"
LOOPBACK = "127."


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, new = {pid}, [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found |= set(new)
    return found


def _sockets(pids: set[int]) -> set[str]:
    found: set[str] = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def _address(text: str) -> tuple[str, int]:
    packed, _, port = text.partition(":")
    raw = bytes.fromhex(packed)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, words), int(port, 16)


def _listening(pids: set[int]) -> list[tuple[str, int]]:
    """TCP addresses on which these processes take connections."""
    own = _sockets(pids)
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and fields[9] in own:
                found.append(_address(fields[1]))
    return found


def test_the_reader_of_sockets_finds_one_that_is_open_to_all() -> None:

    with socket.create_server(("0.0.0.0", 0)) as open_to_all:
        port = open_to_all.getsockname()[1]
        assert ("0.0.0.0", port) in _listening({os.getpid()})


@pytest.mark.engine
@pytest.mark.fault("X3")
def test_no_process_of_an_engine_takes_connections_from_another_address(
    tiny_engines: EnginesUnderTest,
) -> None:
    for engine in tiny_engines.engines:
        found = _listening(_descendants(engine.agent.pid))
        outside = [(host, port) for host, port in found if not host.startswith(LOOPBACK) and host != "::1"]
        assert outside == [], outside
