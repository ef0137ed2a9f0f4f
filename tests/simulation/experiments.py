"""The questions that `docs/scale.md` answers, each a function from nothing to a table and its lines.

Engines are SmolLM2-135M on two cores as measured (`tests.simulation.fit`); only ratios carry over to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gateway.settings.tree import PolicyName
from tests.simulation.engine import Costs, Job
from tests.simulation.fleet import Fleet, Outcome
from tests.simulation.workload import Workload, arrivals, capacity

COSTS = Costs(step_s=0.0207, sequence_s=0.00054, prompt_token_s=0.0004, max_sequences=32, cached_prefixes=64)
"""From 47 tokens a second alone and 840 with a full batch; a prompt of 1,000 tokens is read in 0.4 s."""
BLIND = (PolicyName.ROUND_ROBIN, PolicyName.LEAST_LOAD, PolicyName.POWER_OF_TWO)
SEED = 7
SETTLING = 0.3
"""Share of the requests that come before anything is counted: the fleet fills up first."""


@dataclass(frozen=True, slots=True)
class Found:
    """One run's figures; times in seconds."""

    ttft_p50: float
    ttft_p99: float
    latency_p99: float
    fullest: float
    """Most requests on one engine, as a multiple of the mean over all at the end's load."""
    hits: float
    choosing_us: float
    outcome: Outcome
    requests: int


def quantile(values: Sequence[float], share: float) -> float:
    """Nearest rank, of values in any order."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run(
    policy: PolicyName,
    *,
    engines: int,
    gateways: int = 1,
    load: float = 0.8,
    each: int = 60,
    workload: Workload | None = None,
    failures: Sequence[tuple[float, int]] = (),
) -> Found:
    """`each`: requests for every engine; `load`: share of what the fleet can do with empty prefix caches."""
    workload = workload or Workload()
    random = Random(SEED)
    fleet = Fleet(COSTS, engines, gateways, policy, random)
    count = each * engines
    per_s = load * capacity(COSTS, workload) * engines
    outcome = fleet.run(arrivals(workload, per_s, count, gateways, random), failures)
    counted = _counted(outcome.done, count / per_s)
    ttft = [job.first - job.arrived for job in counted]
    latency = [job.ended - job.arrived for job in counted]
    mean_in_flight = sum(latency) / len(latency) * per_s / engines
    return Found(
        quantile(ttft, 0.5),
        quantile(ttft, 0.99),
        quantile(latency, 0.99),
        outcome.most_in_flight / mean_in_flight,
        sum(job.hit for job in counted) / len(counted),
        outcome.choosing_s / count * 1e6,
        outcome,
        count,
    )


def _counted(done: Sequence[Job], lasts_s: float) -> list[Job]:
    return [job for job in done if job.arrived > SETTLING * lasts_s]


Row = list[str | float]


def policies(sizes: Sequence[int]) -> list[Row]:
    """Fleet sizes: engines, policy, TTFT P50 and P99, latency P99, fullest, microseconds a choice."""
    rows: list[Row] = []
    for engines in sizes:
        for policy in BLIND:
            found = run(policy, engines=engines, load=0.9, each=120 if engines <= 1000 else 60)
            rows.append([
                engines, policy.value, found.ttft_p50, found.ttft_p99, found.latency_p99,
                found.fullest, found.choosing_us,
            ])  # fmt: skip
    return rows


def gateways(counts: Sequence[int], engines: int = 64) -> list[Row]:
    """Several gateways that see only their own requests: count, policy, TTFT P99, latency P99, fullest."""
    rows: list[Row] = []
    for count in counts:
        for policy in BLIND:
            found = run(policy, engines=engines, gateways=count, load=0.9, each=300)
            rows.append([count, policy.value, found.ttft_p99, found.latency_p99, found.fullest])
    return rows


PREFIXED = Workload(prompt_tokens=60, answer_tokens=60, prefixes=2000, prefix_tokens=1500)


def prefixes(sizes: Sequence[int]) -> list[Row]:
    """Long shared beginnings: engines, policy, share of prefix hits, TTFT P50 and P99."""
    rows: list[Row] = []
    for engines in sizes:
        for policy in (PolicyName.ROUND_ROBIN, PolicyName.LEAST_LOAD, PolicyName.PREFIX):
            found = run(policy, engines=engines, load=0.8, each=250, workload=PREFIXED)
            rows.append([engines, policy.value, found.hits, found.ttft_p50, found.ttft_p99])
    return rows


def failures(engines: int = 200, dead: Sequence[int] = (2, 20, 60)) -> list[Row]:
    """Engines that die at once: dead, share, refused, broken streams, retries, until ejected, TTFT P99."""
    rows: list[Row] = []
    for count in dead:
        when = [(20.0, number) for number in range(count)]
        found = run(PolicyName.LEAST_LOAD, engines=engines, load=0.6, each=200, failures=when)
        outcome = found.outcome
        rows.append([
            count, count / engines, outcome.refused, outcome.broken, outcome.retries,
            max(outcome.ejected_after_s, default=0.0), found.ttft_p99,
        ])  # fmt: skip
    return rows
