"""`python -m loadtests.load [--quick] [--url URL]`: Locust and an open loop against `changeover serve`.

Starts the engines and the gateway of infer_config.yaml unless a URL is given. Leaves locust.html (Locust's
own page) and load.html in loadtests/reports.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests import changeover
from loadtests.arrivals import poisson
from loadtests.environment import REPORTS, ROOT, environment
from loadtests.pages import Run, runs_page
from loadtests.processes import ServerFailed, end_on_sigterm, free_ports, running
from loadtests.samples import Slo
from loadtests.shards import drive_sharded
from loadtests.wire import Target
from loadtests.workload import Mix, asks
from reports.page import write

START_S = 600.0
SEED = 1
RATES = [2.0, 4.0, 8.0]
SLO = Slo(latency_s=10.0, ttft_s=2.0)
"""For a small model on a few cores, which also answers the Locust users' long chats."""
MIX = Mix(answer_tokens=24, prefix_tokens=150)


@contextmanager
def served(url: str | None) -> Iterator[str]:
    """The address of what is to be loaded. Raises ServerFailed."""
    if url is not None:
        yield url
        return
    (port,) = free_ports(1)
    print("starting `changeover serve` (a first start makes the model)", flush=True)
    command = [
        *changeover.command(),
        "serve",
        "--config",
        str(ROOT / "infer_config.yaml"),
        "--port",
        str(port),
    ]
    with running("serve", command, port=port, path="/readyz", within_s=START_S):
        yield f"http://127.0.0.1:{port}"


def locust(url: str, users: int, seconds: int) -> int:
    """Locust without its web page; its table goes to this terminal. Returns its exit code."""
    page = REPORTS / "locust.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    command = [
        str(Path(changeover.python()).with_name("locust")),
        "-f",
        str(ROOT / "loadtests/locustfile.py"),
    ]
    command += ["--host", url, "--headless", "--only-summary", "--html", str(page)]
    command += ["--users", str(users), "--spawn-rate", str(max(1, users // 4)), "--run-time", f"{seconds}s"]
    print(f"Locust: {users} users for {seconds} s", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def open_loop(url: str, rates: list[float], seconds: float, facts: dict[str, str]) -> str:
    """Poisson arrivals of all kinds of requests, one rate after the other; returns the last one's figures."""
    wanted = asks(MIX, None, SEED)
    runs = []
    for rate in rates:
        times = poisson(rate, seconds, SEED)
        due = list(zip(times, itertools.islice(wanted, len(times)), strict=True))
        print(f"open loop: {len(due)} requests in {seconds:g} s", flush=True)
        samples = drive_sharded(Target.of(url), due, processes=1, timeout_s=120)
        runs.append(Run.of(f"{rate:g}/s", samples, seconds, SLO))
    page = runs_page("Open-loop runs", runs, SLO, facts)
    print(write(page, REPORTS / "load.html"))
    return page.verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.load", description="A short load.")
    parser.add_argument("--quick", action="store_true", help="a few seconds of each")
    parser.add_argument("--url", help="load this instead of starting `changeover serve`")
    parser.add_argument("--users", type=int, default=20, help="of Locust")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="of the open loop, a second")
    given = parser.parse_args()
    end_on_sigterm()
    facts = environment()
    seconds = 8 if given.quick else 30
    try:
        with served(given.url) as url:
            code = locust(url, given.users, seconds)
            line = open_loop(url, given.rates, seconds / 2, facts)
    except ServerFailed as error:
        print(f"cannot load: {error}", file=sys.stderr)
        return 1
    print(f"{REPORTS / 'locust.html'}\n{line}")
    return code


if __name__ == "__main__":
    sys.exit(main())
