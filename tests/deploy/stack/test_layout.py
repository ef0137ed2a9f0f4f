"""What the stack writes is what its programs take, and production's own files are used as they are."""

from __future__ import annotations

import socket
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from deploy.stack.layout import ALERTMANAGER, LOOPBACK, PROMETHEUS, Layout
from deploy.stack.ports import PortTaken, choose
from deploy.stack.programs import ProgramMissing, find
from gateway.settings.load import load
from tests.drivers import nginx
from tests.drivers.process import free_port


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    written = Layout(tmp_path, choose(free_port()), "tiny-llama")
    written.write()
    return written


def _accepts(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_it_and_reads_the_rules_of_production(layout: Layout) -> None:
    folder = layout.folder / "prometheus"

    _accepts(find("promtool"), "check", "config", str(folder / "prometheus.yml"))

    assert (folder / "prometheus.yml").resolve() == PROMETHEUS / "prometheus.yml"
    assert (folder / "rules").resolve() == PROMETHEUS / "rules"


def test_every_target_is_a_port_of_the_stack(layout: Layout) -> None:
    targets = {
        path.stem: msgspec.json.decode(path.read_bytes())[0]["targets"]
        for path in (layout.folder / "prometheus" / "targets").glob("*.yaml")
    }

    assert targets["gateway"] == [f"{LOOPBACK}:{port}" for port in layout.ports.gateways]
    assert targets["engine"] == [f"{LOOPBACK}:{port}" for port in layout.ports.engines]
    assert set(targets) == {"gateway", "engine", "node", "prometheus", "alertmanager"}


def test_alertmanager_takes_it_and_only_addresses_and_secrets_differ(layout: Layout) -> None:
    file = layout.folder / "alertmanager" / "alertmanager.yml"

    _accepts(find("amtool"), "check-config", str(file))

    ours, theirs = file.read_text().splitlines(), ALERTMANAGER.read_text().splitlines()
    changed = [line for line in ours if line not in theirs and not line.startswith("#")]
    assert len(ours) == len(theirs) + 1
    assert all("pagerduty_url" in line or "/secrets/" in line for line in changed), changed


def test_nginx_takes_it(layout: Layout) -> None:
    _accepts(*nginx.command(layout.folder / "nginx"), "-t")


def test_the_gateways_and_engines_take_their_settings(layout: Layout) -> None:
    gateway = load(layout.folder / "gateway.yaml", environment={}).settings
    engine = load(layout.folder / "engine.yaml", environment={}).settings

    assert [str(endpoint.url) for endpoint in gateway.served_models()[0].endpoints] == [
        f"http://{LOOPBACK}:{port}" for port in layout.ports.engines
    ]
    assert engine.engine.replicas == len(layout.ports.engines)


def test_a_taken_port_of_the_edge_is_told_and_other_ports_move() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(PortTaken, match=f"port {port} is taken.*PORT=8080"):
            choose(port)

    ports = choose(free_port())
    every = [*ports.gateways, *ports.engines, ports.valkey, ports.prometheus, ports.alertmanager, ports.node]
    assert len(set(every)) == len(every)


def test_a_program_that_is_missing_is_told_with_what_to_do() -> None:
    assert Path(find("promtool")).stat().st_mode & stat.S_IXUSR

    with pytest.raises(ProgramMissing, match="make setup"):
        find("no-such-program")
