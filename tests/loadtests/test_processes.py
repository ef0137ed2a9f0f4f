from __future__ import annotations

import sys

import pytest

from loadtests.processes import ServerFailed, alive, family, free_ports, running, start

SERVER = (
    "import http.server as h, sys;h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')"
)
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[1]])"


def test_a_server_counts_with_its_children_and_ends_with_them() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", PARENT, str(port), SERVER]
    with running("test-server", command, port=port, path="/", within_s=30) as server:
        pids = family(server.pid)
        assert len(pids) == 2
        assert server.rss_mb() > 5
        assert server.cpu_s() > 0
    assert not any(map(alive, pids))


def test_a_paused_server_can_be_ended() -> None:
    (port,) = free_ports(1)
    with running("test-server", [sys.executable, "-c", SERVER, str(port)], port=port, path="/") as server:
        server.pause()
    assert not alive(server.pid)


def test_a_server_that_ends_at_once_says_its_last_words() -> None:
    server = start("test-server", [sys.executable, "-c", "raise SystemExit('no such engine')"])
    with pytest.raises(ServerFailed, match="no such engine"):
        server.wait_ready(free_ports(1)[0], within_s=30)
    server.stop()


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(ServerFailed, match="no-such-command"):
        start("test-server", ["no-such-command"])
