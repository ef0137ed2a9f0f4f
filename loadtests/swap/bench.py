"""`python -m loadtests.swap.bench`: twenty swaps in a row at 70 % of capacity, and what they cost.

Two real engines behind `changeover serve`, swapped in place. First the capacity, then a while without swaps,
then the swaps, at the same rate. `p99_ratio`: P99 latency during the swaps over that without;
`rotation_over_reload`: how long a member was out of rotation, its drain and its probe left out, over the
bare `reload_weights` of the same engines. Ends with 1 if a request failed or was answered by wrong weights.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loadtests.environment import REPORTS, environment
from loadtests.processes import ServerFailed, end_on_sigterm
from loadtests.swap.page import swaps_page
from loadtests.swap.scene import Scene, SceneFailed, qualify, scene
from loadtests.swap.traffic import Answer, Judged, Traffic, capacity, judge, p99
from loadtests.wire import Target
from reports.page import write

SHARE = 0.7
CLIENTS = 32
LIMIT_S = 300.0
_BACKENDS = ("backend-0", "backend-1")


def swap_all(
    play: Scene, versions: Sequence[int], served: list[tuple[float, str]]
) -> tuple[list[float], list[float]]:
    """Roll them out in turn. Returns seconds out of rotation: whole, and without drain and probe."""
    whole: list[float] = []
    bare: list[float] = []
    phases: dict[str, list[float]] = {}
    for number, version in enumerate(versions, 1):
        began = time.monotonic()
        play.ask("POST", "/admin/rollouts", {"version": str(version)})
        shown = play.ended(version, LIMIT_S, lambda text: None)
        record = shown["rollout"]
        if record["stage"] != "promoted":
            raise SceneFailed(f"version {version} was {record['stage']}: {record['reason']}")
        play.settled(version)
        served.append((time.monotonic(), shown["serving"]))
        for name in _BACKENDS:
            swap = play.agent(name)["swap"]
            timings = swap["timings"]
            whole.append(swap["out_of_rotation_s"])
            bare.append(whole[-1] - timings.get("draining", 0.0) - timings.get("probing", 0.0))
            for phase, seconds in timings.items():
                phases.setdefault(phase, []).append(seconds)
        took = time.monotonic() - began
        out = ", ".join(f"{seconds:.2f} s" for seconds in whole[-2:])
        print(f"swap {number}/{len(versions)}: {took:.1f} s, out of rotation {out}", flush=True)
    print(
        "median " + ", ".join(f"{phase} {median(found):.3f} s" for phase, found in phases.items()), flush=True
    )
    return whole, bare


def bare_reload(play: Scene, version: int) -> float:
    """Median seconds of `reload_weights` alone, on engines that have nothing else to do."""
    found: list[float] = []
    for name in _BACKENDS:
        play.drain(name, True)
        found += [play.reload(name, play.version_folder(version)) for _ in range(3)]
    return median(found)


@dataclass
class Measured:
    """What came of the load, and what each swap cost."""

    judged: Judged
    answers: list[Answer]
    served: list[tuple[float, str]]
    out_s: list[float]
    p99_ratio: float
    rotation: float
    """Over reload."""

    def last_line(self, count: int) -> str:
        judged = self.judged
        return (
            f"swaps={count} failed={judged.failed} stale={judged.stale} mixed={judged.mixed} "
            f"p99_ratio={self.p99_ratio:.2f} rotation_over_reload={self.rotation:.2f}"
        )


def measure(play: Scene, count: int, quiet_s: float) -> Measured:
    """Capacity, a while without swaps, then the swaps."""
    target = Target.of(play.url)
    versions = [
        play.publish(folder, step) for step, folder in enumerate(play.chain(play.base(), count + 1), 1)
    ]
    served: list[tuple[float, str]] = []
    swap_all(play, versions[:1], served)
    most = asyncio.run(capacity(target, CLIENTS, quiet_s))
    rate = SHARE * most
    print(f"capacity {most:.1f} answers/s; load {rate:.1f}/s", flush=True)
    traffic = Traffic(target, rate)
    traffic.start()
    try:
        began = time.monotonic()
        time.sleep(quiet_s)
        swaps_began = time.monotonic()
        whole, bare = swap_all(play, versions[1:], served)
        ended = time.monotonic()
    finally:
        traffic.stop()
    without, during = p99(traffic.between(began, swaps_began)), p99(traffic.between(swaps_began, ended))
    reload_s = bare_reload(play, versions[-1])
    print(f"P99 {without:.3f} s without, {during:.3f} s during; bare reload {reload_s:.3f} s", flush=True)
    judged = judge(traffic.answers, served)
    return Measured(judged, traffic.answers, served, whole, during / without, median(bare) / reload_s)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.swap.bench", description="Swaps in a row at 70 % of capacity."
    )
    parser.add_argument("--environment", type=Path, default=Path(".venv-engine"), help="with vLLM and torch")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter: to see that it works")
    given = parser.parse_args(arguments)
    end_on_sigterm()
    count, quiet_s = (3, 5.0) if given.quick else (given.count, 30.0)
    python = given.environment.absolute() / "bin" / "python"
    try:
        with tempfile.TemporaryDirectory(prefix="swap-", ignore_cleanup_errors=True) as folder:
            qualify(Path(folder), print)
            with scene(Path(folder), python, auto=False, wait_s=10, member_deadline_s=300) as play:
                measured = measure(play, count, quiet_s)
    except (SceneFailed, ServerFailed) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    judged, verdict = measured.judged, measured.last_line(count)
    for line in judged.told:
        print(line)
    print(f"{judged.answers} answers: {judged.versions}")
    page = swaps_page(
        "Swaps at 70 % of capacity",
        measured.answers,
        measured.served,
        measured.out_s,
        verdict=verdict,
        facts=environment(),
    )
    print(write(page, REPORTS / "swap.html"))
    print(verdict)
    return 1 if judged.failed or judged.stale or judged.mixed else 0


if __name__ == "__main__":
    sys.exit(main())
