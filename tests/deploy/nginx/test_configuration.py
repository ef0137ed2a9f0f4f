"""nginx's configuration: valid, safe by gixy's rules, and in agreement with the gateway's defaults."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from deploy.checks.edge import complaints
from gateway.settings.tree import Settings
from tests.deploy.nginx.certificate import self_signed
from tests.drivers.nginx import NGINX, command, defaults, render


def text(name: str) -> str:
    return (NGINX / name).read_text()


def seconds(directive: str, *names: str) -> int:
    found = re.search(rf"^\s*{directive}\s+(\d+)s;", "".join(map(text, names)), re.MULTILINE)
    assert found is not None, directive
    return int(found[1])


@pytest.mark.parametrize("tls", [False, True])
def test_nginx_and_gixy_have_nothing_against_it(tmp_path: Path, tls: bool) -> None:
    assert list(complaints(self_signed(tmp_path) if tls else None)) == []


def test_nginx_writes_only_below_its_prefix(tmp_path: Path) -> None:
    """Its container has a read-only root; whatever the build's own paths are, none may be left."""
    whole = subprocess.run([*command_on(tmp_path), "-T"], capture_output=True, text=True, check=True).stdout
    written = re.findall(r"^\s*(\w+_temp_path|pid)\s+(\S+);", whole, re.MULTILINE)
    assert {name for name, _ in written} == {
        "pid",
        *(f"{kind}_temp_path" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")),
    }
    assert not [path for _, path in written if path.startswith("/")]


def command_on(parent: Path) -> list[str]:
    folder = parent / "nginx"
    folder.mkdir()
    render(folder, {})
    return command(folder)


def test_every_value_is_used_and_none_is_missing() -> None:
    templates = "".join(path.read_text() for path in NGINX.rglob("*.template"))
    asked = set(re.findall(r"\$\{([A-Z_]+)\}", templates))
    given = {name for name in defaults() if name.startswith("EDGE_")} | {"NGINX_LOCAL_RESOLVERS"}
    assert asked == given


def test_the_gateway_gives_up_before_nginx_does() -> None:
    settings = Settings()
    read_timeout = int(defaults()["EDGE_READ_TIMEOUT"].removesuffix("s"))
    assert read_timeout > settings.timeouts.total_s
    assert read_timeout > settings.timeouts.heartbeat_s * 2
    assert seconds("worker_shutdown_timeout", "nginx.conf") > settings.timeouts.stream_total_s


def test_an_idle_connection_is_closed_by_nginx_before_the_gateway_closes_it() -> None:
    upstream = text("templates/edge.conf.template").partition("upstream gateways")[2].partition("\n}")[0]
    found = re.search(r"keepalive_timeout (\d+)s", upstream)
    assert found is not None
    assert int(found[1]) < Settings().server.keep_alive_s


def test_the_largest_body_is_the_same() -> None:
    found = re.search(r"client_max_body_size (\d+)m;", text("changeover/server.conf"))
    assert found is not None
    assert int(found[1]) * 1024 * 1024 == Settings().server.max_body_bytes
