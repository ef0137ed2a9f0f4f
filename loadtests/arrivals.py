"""When requests arrive: seeded schedules for an open loop. Pure.

A schedule is a sorted list of seconds from the start of a run. It is made before the run, so the
same seed gives the same load to every server that is compared, and nothing a server does can delay it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Schedule = list[float]


def constant(rate: float, seconds: float, seed: int = 0) -> Schedule:
    """One arrival each 1/rate seconds. The seed changes nothing; it is there to be called alike."""
    return [index / rate for index in range(int(rate * seconds))]


def poisson(rate: float, seconds: float, seed: int = 0) -> Schedule:
    """Independent arrivals: exponential gaps with mean 1/rate."""
    random = Random(seed)
    times: Schedule = []
    now = random.expovariate(rate)
    while now < seconds:
        times.append(now)
        now += random.expovariate(rate)
    return times


BURST = 20
"""Arrivals of one burst: about what a page of parallel calls, or an RL group, sends at a time."""


def bursts(rate: float, seconds: float, seed: int = 0) -> Schedule:
    """`BURST` arrivals at the same moment; the moments are Poisson, the mean rate is `rate`."""
    return [moment for moment in poisson(rate / BURST, seconds, seed) for _ in range(BURST)]


ARRIVALS: dict[str, Callable[[float, float, int], Schedule]] = {
    "poisson": poisson,
    "constant": constant,
    "bursts": bursts,
}
"""The kinds that the command line knows."""
