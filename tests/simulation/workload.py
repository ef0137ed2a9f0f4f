"""Who asks for what, and when: Poisson arrivals of requests with prompts and answers of many lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from tests.simulation.engine import Costs, Job


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths are exponential around their means, at least 1 token."""

    prompt_tokens: int = 200
    answer_tokens: int = 100
    prefixes: int = 0
    """Shared beginnings, asked for by a Zipf law of exponent 1; 0: none."""
    prefix_tokens: int = 0


def capacity(costs: Costs, workload: Workload) -> float:
    """Requests a second that one engine can answer when its batch is full (nothing in the prefix cache)."""
    full = costs.step_s + costs.sequence_s * costs.max_sequences
    prompt_s = (workload.prompt_tokens + workload.prefix_tokens) * costs.prompt_token_s
    return 1 / (workload.answer_tokens * full / costs.max_sequences + prompt_s)


def arrivals(workload: Workload, per_s: float, count: int, gateways: int, random: Random) -> Iterator[Job]:
    """So many requests, each at one of the gateways."""
    weights = list(accumulate(1 / (rank + 1) for rank in range(workload.prefixes)))
    names = range(workload.prefixes)
    now = 0.0
    for _ in range(count):
        now += random.expovariate(per_s)
        prefix = random.choices(names, cum_weights=weights)[0] if workload.prefixes else -1
        own = 1 + int(random.expovariate(1 / workload.prompt_tokens))
        answer = 1 + int(random.expovariate(1 / workload.answer_tokens))
        shared = workload.prefix_tokens if prefix >= 0 else 0
        yield Job(now, own + shared, answer, prefix, shared, random.randrange(gateways))
