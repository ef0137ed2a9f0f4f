"""Where a comparison on one core happens: its cores, its folder, and how each server under test starts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests import changeover
from loadtests.peers import configs
from loadtests.peers.catalog import Peer, Place
from loadtests.peers.install import NotRun, from_debian
from loadtests.peers.rounds import Lengths, Runner
from loadtests.peers.wrk import WrkFailed
from loadtests.processes import Server, ServerFailed, cores, free_ports, running

FAILURES = (NotRun, ServerFailed, WrkFailed)
"""What ends the measurement of one server, with a sentence."""
SLOWEST_START_S = 120.0


class Bench:
    """Where this run happens: its cores, its folder, what it says."""

    def __init__(self, folder: Path, lengths: Lengths) -> None:
        self.folder = folder
        self.lengths = lengths
        self.core, self.load_core = cores()

    def say(self, line: str) -> None:
        print(line, flush=True)

    def static_nginx(self, stack: ExitStack, name: str, core: int) -> tuple[Server, list[int]]:
        """Two upstreams that answer at once. Raises NotRun, ServerFailed."""
        ports = free_ports(2)
        home = self.folder / name
        home.mkdir()
        config = home / "nginx.conf"
        config.write_text(configs.static_upstreams(ports, home))
        command = [str(from_debian("nginx") / "nginx"), "-c", str(config), "-p", str(home)]
        return stack.enter_context(running(name, command, port=ports[0], core=core)), ports

    def start_peer(self, peer: Peer, upstreams: list[int], stack: ExitStack) -> Runner:
        port, spare = free_ports(2)
        home = Path(stack.enter_context(TemporaryDirectory(dir=self.folder)))
        command = peer.command(Place(peer.install(), port, spare, upstreams, home))
        server = stack.enter_context(
            running(
                peer.name.replace(" ", "-"),
                command,
                port=port,
                path=peer.ready,
                core=self.core,
                environment=peer.environment,
                within_s=SLOWEST_START_S,
            )
        )
        return Runner(server, port)

    def start_ours(
        self, upstreams: list[int], more: changeover.Settings, name: str, stack: ExitStack
    ) -> Runner:
        """A gateway without request log unless `more` says otherwise."""
        settings = {"endpoints": changeover.urls(upstreams), "logging": {"requests": False}, **more}
        return Runner(*stack.enter_context(changeover.gateway(settings, name=name, core=self.core)))

    def start_direct(self, stack: ExitStack) -> Runner:
        server, ports = self.static_nginx(stack, "direct", self.core)
        return Runner(server, ports[0])
