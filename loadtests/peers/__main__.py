"""`python -m loadtests.peers [--quick]`: the gateway beside its peers, one core each in turn.

Last line: the ratios to the peers. Leaves loadtests/reports/peers.html.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests.environment import REPORTS, environment
from loadtests.peers import results, rounds, wrk
from loadtests.peers.bench import FAILURES, Bench
from loadtests.peers.catalog import DIRECT, OURS, OURS_LOGGING, PEERS, Peer
from loadtests.peers.install import from_debian
from loadtests.peers.rounds import Lengths, Measured, Runner, Start
from loadtests.processes import end_on_sigterm, free_ports, running
from reports.page import Report, text_table, write

QUICK = Lengths(rounds=3, many=1, alone=1, streams=1)
FULL = Lengths(rounds=5, many=3, alone=2, streams=2)
OURS_CACHED = "changeover, cache hits"
LOGGING = {"logging": {"requests": True}}


def plain_requests(bench: Bench, chosen: list[Peer]) -> list[Measured]:
    """JSON requests through all of them, then cache hits through ours."""
    script = wrk.script(bench.folder, "post", rounds.BODY)
    hit = wrk.script(bench.folder, "hit", rounds.CACHED_BODY)
    with ExitStack() as stack:
        _, upstreams = bench.static_nginx(stack, "upstreams", bench.load_core)
        quiet = partial(bench.start_ours, upstreams, {}, "gateway")
        starts: list[tuple[Measured, Start]] = [
            (Measured(OURS), quiet),
            *((Measured(peer.name), partial(bench.start_peer, peer, upstreams)) for peer in chosen),
            (Measured(OURS_LOGGING), partial(bench.start_ours, upstreams, LOGGING, "gateway-log")),
            (Measured(OURS_CACHED), quiet),
            (Measured(DIRECT), bench.start_direct),
        ]

        def measure(runner: Runner, into: Measured) -> None:
            lua = hit if into.name == OURS_CACHED else script
            rounds.requests_round(runner, into, lua, bench.lengths, bench.load_core)

        rounds.alternate(starts, bench.lengths.rounds, measure, FAILURES, bench.say)
    return [measured for measured, _ in starts]


def streams(bench: Bench, chosen: list[Peer], measured: dict[str, Measured]) -> None:
    """Streams through all that answered plain requests; writes into what was measured of each."""
    ports = free_ports(2)
    pacer = [sys.executable, "-m", "loadtests.peers.pacer", *map(str, ports)]
    with ExitStack() as stack:
        stack.enter_context(running("pacer", pacer, port=ports[0], core=bench.load_core))
        starts: list[tuple[Measured, Start]] = [
            (measured[OURS], partial(bench.start_ours, ports, {}, "gateway")),
            *((measured[peer.name], partial(bench.start_peer, peer, ports)) for peer in chosen),
        ]
        starts = [(each, start) for each, start in starts if not each.why_not]

        def measure(runner: Runner, into: Measured) -> None:
            rounds.streams_round(runner, into, bench.lengths, bench.load_core)

        rounds.alternate(starts, bench.lengths.rounds, measure, FAILURES, bench.say)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter rounds: under three minutes")
    parser.add_argument("--only", help="peers to run, by name, with commas between")
    arguments = parser.parse_args()
    end_on_sigterm()
    chosen = [peer for peer in PEERS if not arguments.only or peer.name in arguments.only.split(",")]
    facts = environment()
    lengths = QUICK if arguments.quick else FULL
    with TemporaryDirectory(prefix="peers-") as folder:
        bench = Bench(Path(folder), lengths)
        try:
            from_debian("wrk")
            bench.say(f"plain requests ({rounds.MANY} connections, then 1)")
            measured = plain_requests(bench, chosen)
            bench.say(f"streams ({rounds.STREAMS}, an event each 2 ms)")
            streams(bench, chosen, {each.name: each for each in measured})
        except FAILURES as error:
            print(f"cannot measure: {error}", file=sys.stderr)
            return 1
    note = (
        f"Each gateway on core {bench.core} alone, load and two static nginx upstreams on core "
        f"{bench.load_core}; medians of {lengths.rounds} alternating rounds. Round robin and no request log "
        "at the peers; ours chooses by load, validates, keeps metrics and limits, and is compared with its "
        "request log off, as theirs are; the row with it on is beside it."
    )
    table = results.table(measured, note)
    line = results.last_line(measured)
    page = Report(
        title="The gateway beside its peers",
        lead="One core for each gateway in turn; the same upstreams and load for all.",
        verdict=line,
        tables=[table],
        plots=results.plots(measured),
        facts=facts,
    )
    print(f"\n{note}\n\n{text_table(table)}\n\n{write(page, REPORTS / 'peers.html')}\n{line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
