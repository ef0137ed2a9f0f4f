"""`python -m tests.gateway.rollout.simulate`: how long rollouts take in fleets of up to a thousand members.

The plan itself, against simulated members: what is printed is the table in docs/rollouts.md. Times are
seconds of the simulation, so the machine it runs on does not matter.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from gateway.settings.rollout import Rollout as Options
from tests.gateway.rollout.world import CRASHES, DIES, GOOD, OLD, Machine, World

ROUND_S = 1.0
GBIT_S = 10.0
"""Of each member's network, for fetching."""


@dataclass(frozen=True)
class Case:
    members: int
    gigabytes: float
    drain_s: float
    unavailable: int
    failing: float = 0.0
    """Share of the members whose first swap fails, in one of three ways."""
    mode: str = "rolling"

    @property
    def load_s(self) -> float:
        """Reading and proving: a second, and a second for each 2 GB."""
        return 1.0 + self.gigabytes / 2


@dataclass(frozen=True)
class Found:
    seconds: float
    fewest: int
    """Members that served at the worst moment."""
    orders: int
    end: str


def simulate(case: Case, seed: int = 1) -> Found:
    """One rollout, from publication to its end."""
    random = Random(seed)
    fetch_s = case.gigabytes * 8 / GBIT_S
    machines = []
    for index in range(case.members):
        fates = deque([random.choice([OLD, DIES, CRASHES])] if random.random() < case.failing else [GOOD])
        drain_s = case.drain_s * random.uniform(0.5, 1.0)
        machines.append(
            Machine(
                f"member-{index}",
                fates=fates,
                fetch_s=fetch_s * random.uniform(0.9, 1.2),
                drain_s=drain_s,
                load_s=case.load_s,
            )
        )
    options = Options(max_unavailable=case.unavailable, mode=case.mode, wait_s=case.drain_s)  # type: ignore[arg-type]
    fleet = World(machines, options)
    began = fleet.now
    fleet.publish(1)
    while fleet.record is None or fleet.record.active:
        fleet.step()
        fleet.advance(ROUND_S)
    orders = sum(len(machine.orders) for machine in machines)
    return Found(fleet.now - began, fleet.fewest, orders, fleet.record.stage.value)


CASES = (
    *(Case(members, 2, 10, max(1, members // 20)) for members in (2, 10, 100, 1000)),
    *(Case(1000, gigabytes, 10, 50) for gigabytes in (16, 140)),
    *(Case(1000, 2, drain_s, 50) for drain_s in (0, 60)),
    *(Case(1000, 2, 10, unavailable) for unavailable in (10, 250)),
    Case(1000, 2, 10, 50, failing=0.02),
    Case(1000, 2, 10, 50, mode="atomic"),
)


def main() -> None:
    print("| members | GB | drain up to | at a time | fail once | mode | took | least serving | orders |")
    print("|---:|---:|---:|---:|---:|---|---:|---:|---:|")
    for case in CASES:
        found = simulate(case)
        print(
            f"| {case.members:,} | {case.gigabytes:g} | {case.drain_s:g} s | {case.unavailable} "
            f"| {case.failing:.0%} | {case.mode} | {found.seconds:,.0f} s | {found.fewest:,} "
            f"| {found.orders:,} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
