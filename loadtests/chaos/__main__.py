"""`make chaos MINUTES=n`: real engines under load while everything around them breaks in turn.

`changeover serve` with two engines, two gateway workers, a store on a small disk of its own and Valkey; load
at 70 % of the capacity. Every answer is judged: none may fail before it began, come from other weights than
it names, or from a version that serves no more. Ends with 1 otherwise, and with a page of what happened.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from loadtests.chaos import means
from loadtests.chaos.load import Load, capacity
from loadtests.chaos.story import Story, Watcher
from loadtests.chaos.verdict import Verdict, page, verdict
from loadtests.environment import REPORTS
from loadtests.processes import ServerFailed, end_on_sigterm
from loadtests.swap.scene import Scene, SceneFailed, qualify, scene
from loadtests.wire import Target
from reports.page import write

SHARE = 0.7
CLIENTS = 16
MEASURED_S = 10.0
SETTINGS: dict[str, object] = {"limits": {"max_queue_s": 120}}
"""Requests wait out a restart of both engines."""


def perform(story: Story, seconds: float, rate: float | None) -> tuple[Load, Verdict]:
    """The first version, the load, the chaos, the healing, the verdict."""
    target = Target.of(story.play.url)
    story.play.ended(story.publish_next(), 600, lambda text: story.tell("the first rollout", text))
    if rate is None:
        most = asyncio.run(capacity(target, CLIENTS, MEASURED_S))
        rate = max(1.0, SHARE * most)
        story.tell("capacity", f"{most:.1f} answers/s; load {rate:.1f}/s")
    load = Load(target, rate)
    load.start()
    try:
        with Watcher(story):
            story.perform(time.monotonic() + seconds)
            story.heal()
    finally:
        load.stop()
    return load, verdict(story, load, _left(story.play), _metric(story.play, "changeover_swap_seconds_count"))


def _left(play: Scene) -> int:
    """What the gateway believes to be under way though nobody asks, once it has had time to end."""
    deadline = time.monotonic() + 20
    while True:
        left = _metric(play, "changeover_in_flight") + _metric(play, "changeover_queued")
        if not left or time.monotonic() > deadline:
            return int(left)
        time.sleep(0.5)


def _metric(play: Scene, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", play.port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


def run(minutes: float, python: Path, seed: int, rate: float | None, *, in_place: bool) -> int:
    with ExitStack() as stack:
        root = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True))
        )
        disk = stack.enter_context(means.disk(root / "store"))
        clock = means.clock(root)
        valkey = means.Valkey()
        stack.callback(valkey.stop)
        if in_place:
            qualify(root, print)
        cache = {"type": "tiered", "url": valkey.url}
        play = stack.enter_context(
            scene(
                root,
                python,
                workers=2,
                sections={**SETTINGS, "cache": cache},
                environment=clock.environment,
                wait_s=2,
                member_deadline_s=300,
            )
        )
        story = Story(play, valkey, disk, clock, Random(seed))
        load, found = perform(story, minutes * 60, rate)
    for line in found.told:
        print(line)
    path = write(page(story, load, found), REPORTS / "chaos.html")
    print(f"{path}\n{found.line()}")
    return 0 if found.clean else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.chaos", description="Chaos on real engines.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of chaos (default: 10)")
    parser.add_argument("--environment", type=Path, default=Path(".venv-engine"), help="with vLLM and torch")
    parser.add_argument("--seed", type=int, default=1, help="of what happens when")
    parser.add_argument("--rate", type=float, help="requests a second (default: 70 %% of the capacity)")
    parser.add_argument("--restart", action="store_true", help="do not qualify: every swap is a restart")
    given = parser.parse_args(arguments)
    end_on_sigterm()
    python = given.environment.absolute() / "bin" / "python"
    try:
        return run(given.minutes, python, given.seed, given.rate, in_place=not given.restart)
    except (SceneFailed, ServerFailed) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
