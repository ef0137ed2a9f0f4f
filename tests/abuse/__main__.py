"""`make abuse`: random scripts until time is up or enough were played; the last line counts what was found.

    python -m tests.abuse [--examples 2000] [--minutes 10] [--seed 1] [--processes 2]

A script that violates something is made smaller and printed as code: put it into `tests/faults`. Ends with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.abuse.play import play
from tests.abuse.steps import Step, scripts, shown
from tests.abuse.world import Ground, ground

TOLD_EVERY_S = 15.0
SPARE_FILES = 8
WARM = 5
"""Examples after which files are counted: what is opened once is open by then."""
SHRINKS_S = 120.0


@dataclass
class Campaign:
    """What was played so far."""

    shared: Ground
    minutes: float
    began: float = field(default_factory=time.monotonic)
    examples: int = 0
    steps: int = 0
    told: float = 0.0
    files: int = 0
    failing_since: float = 0.0
    least: list[Step] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Time is up; a failure has a while of its own to be made smaller."""
        now = time.monotonic()
        if self.failing_since:
            return now - self.failing_since > SHRINKS_S
        return now - self.began > self.minutes * 60

    def example(self, script: list[Step]) -> None:
        """Play one. Raises AssertionError with what was violated."""
        if self.over:
            return
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(play(self.shared, script))
        if not self.failing_since:
            self.examples += 1
            self.steps += len(script)
        found += self._files()
        self._tell()
        if found and not self.failing_since:
            self.failing_since = time.monotonic()
            print(f"violated: {found[0][:300]}; now made smaller", flush=True)
        if found:
            self.least, self.violations = script, found
            raise AssertionError(found[0])

    def _files(self) -> list[str]:
        now = len(list(Path("/proc/self/fd").iterdir()))
        if self.examples == WARM:
            self.files = now
        if self.examples > WARM and now > self.files + SPARE_FILES:
            return [f"{now} open files, {self.files} before"]
        return []

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self.told > TOLD_EVERY_S:
            self.told = now
            print(f"{now - self.began:4.0f} s: {self.examples} examples, {self.steps} steps", flush=True)


def campaign(shared: Ground, examples: int, minutes: float, seeded: int) -> Campaign:
    """Play until one of the limits is met, or something is violated."""
    found = Campaign(shared, minutes)
    phases = (Phase.generate, Phase.shrink)
    health = list(HealthCheck)

    @seed(seeded)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=health,
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(scripts())
    def run(script: list[Step]) -> None:
        found.example(script)

    try:
        run()
    except BaseException as error:
        if not found.violations:
            raise
        if isinstance(error, KeyboardInterrupt):
            raise
    return found


def several(processes: int, examples: int, minutes: float, seeded: int) -> tuple[int, int, int]:
    """As many campaigns side by side, each with its own seed. Returns examples, steps, violations."""
    share = -(-examples // processes)
    given_ = ("--examples", str(share), "--minutes", str(minutes), "--processes", "1")
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.abuse", *given_, "--seed", str(seeded * 1000 + number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    counts = [0, 0, 0]
    with ThreadPoolExecutor(processes) as threads:
        for last in threads.map(_follow, range(processes), children):
            found = re.fullmatch(r"examples=(\d+) steps=(\d+) violations=(\d+)", last)
            # One that ended without its last line has failed by itself.
            for place, count in enumerate(found.groups() if found else ("0", "0", "1")):
                counts[place] += int(count)
    return counts[0], counts[1], counts[2]


def _follow(number: int, child: subprocess.Popen[str]) -> str:
    """Print what it says; its last line."""
    last = ""
    assert child.stdout is not None
    for line in child.stdout:
        if last:
            print(f"{number}: {last}", flush=True)
        last = line.rstrip()
    child.wait()
    return last


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Random abuse of gateways on real sockets.")
    parser.add_argument("--examples", type=int, default=2_000, help="at most (default: 2,000)")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="side by side (default: 2)")
    asked = parser.parse_args()
    if asked.processes > 1:
        counts = several(asked.processes, asked.examples, asked.minutes, asked.seed)
        print(_line(*counts))
        return 1 if counts[2] else 0
    with ground() as shared:
        found = campaign(shared, asked.examples, asked.minutes, asked.seed)
    if found.violations:
        print(f"violated by\n{shown(found.least)}")
        for line in found.violations:
            print(f"  {line}")
    print(_line(found.examples, found.steps, len(found.violations)))
    return 1 if found.violations else 0


def _line(examples: int, steps: int, violations: int) -> str:
    """The last one of `make abuse`."""
    return f"examples={examples} steps={steps} violations={violations}"


if __name__ == "__main__":
    sys.exit(main())
