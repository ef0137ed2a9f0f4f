from __future__ import annotations

from random import Random

import pytest

from gateway.settings.tree import PolicyName
from tests.simulation import experiments
from tests.simulation.engine import Costs, Engine, Job
from tests.simulation.fleet import Fleet
from tests.simulation.workload import Workload, arrivals, capacity

COSTS = Costs(step_s=1.0, sequence_s=0.5, prompt_token_s=0.1, max_sequences=2, cached_prefixes=1)


def test_one_sequence_takes_its_reading_and_its_steps() -> None:
    engine = Engine("e", COSTS, limit=8)
    job = Job(0.0, prompt_tokens=10, answer_tokens=4)
    engine.take(job, 0.0)
    assert job.first == pytest.approx(1.0 + 1.5)
    assert engine.next_end() == pytest.approx(1.0 + 4 * 1.5)


def test_sequences_that_run_together_slow_each_other() -> None:
    engine = Engine("e", COSTS, limit=8)
    first, second = Job(0.0, 0, 4), Job(0.0, 0, 8)
    engine.take(first, 0.0)
    engine.take(second, 0.0)
    assert engine.next_end() == pytest.approx(4 * 2.0)
    assert engine.end_one(8.0) is first
    assert engine.next_end() == pytest.approx(8.0 + 4 * 1.5)


def test_a_full_batch_makes_the_next_one_wait_for_an_end() -> None:
    engine = Engine("e", COSTS, limit=8)
    jobs = [Job(0.0, 0, 2), Job(0.0, 0, 4), Job(0.0, 0, 1)]
    for job in jobs:
        engine.take(job, 0.0)
    assert jobs[2].first == float("inf")
    engine.end_one(engine.next_end())
    assert jobs[2].first < float("inf")


def test_a_prefix_is_read_once_until_another_takes_its_place() -> None:
    engine = Engine("e", COSTS, limit=8)
    now = 0.0
    hits = []
    for prefix in (1, 1, 2, 1):
        job = Job(now, 10, 1, prefix, prefix_tokens=10)
        engine.take(job, now)
        now = engine.next_end()
        engine.end_one(now)
        hits.append(job.hit)
    assert hits == [False, True, False, False]


@pytest.mark.parametrize("policy", list(PolicyName))
def test_every_request_ends_once_and_every_place_is_given_back(policy: PolicyName) -> None:
    random = Random(1)
    fleet = Fleet(experiments.COSTS, 10, 3, policy, random)
    workload = Workload(prefixes=5, prefix_tokens=50)
    per_s = 10 * capacity(experiments.COSTS, workload)
    outcome = fleet.run(arrivals(workload, per_s, 500, 3, random), [(2.0, 0), (3.0, 1)])
    assert len(outcome.done) + outcome.broken + outcome.refused == 500
    assert {engine.in_flight for engine in fleet.engines} == {0}
    assert {view.in_flight for gateway in fleet.gateways for view in gateway.views.values()} == {0}


def test_load_is_spread_better_by_looking_at_it_than_in_turn() -> None:
    turns = experiments.run(PolicyName.ROUND_ROBIN, engines=20, each=100, load=0.9)
    looks = experiments.run(PolicyName.LEAST_LOAD, engines=20, each=100, load=0.9)
    assert looks.fullest < turns.fullest


def test_prefix_routing_finds_more_in_the_caches() -> None:
    spread = experiments.run(PolicyName.LEAST_LOAD, engines=8, each=100, workload=experiments.PREFIXED)
    sent = experiments.run(PolicyName.PREFIX, engines=8, each=100, workload=experiments.PREFIXED)
    assert sent.hits > spread.hits
