from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from checkpoints.manifest import Golden
from checkpoints.probe.contract import SCHEMA, Counterfactual, Probe, Scored
from checkpoints.probe.diagnosis import Cause
from checkpoints.probe.engine import Engine, EngineError
from checkpoints.probe.judge import Report, judge
from checkpoints.probe.replay import observe, warm_prompts, warm_up
from tests.checkpoints.engine_fake import VOCABULARY, FakeEngine, distribution, likeliest, running_engine


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with running_engine() as running:
        yield running


def _rows() -> list[list[int]]:
    source = random.Random(11)
    return [[source.randrange(VOCABULARY) for _ in range(12)] for _ in range(20)]


def _numbers(rows: list[list[int]], seed: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(distribution(row[:at], seed)[row[at]] for at in range(1, len(row))) for row in rows)


def _probe(seed: int = 0, parent: int = 1) -> Probe:
    rows = _rows()
    texts = []
    for row, logprobs in zip(rows, _numbers(rows, seed), strict=True):
        places = [distribution(row[:at], seed) for at in range(1, len(row))]
        ids = tuple(tuple(likeliest(values, 5)) for values in places)
        tops = tuple(tuple(v[t] for t in best) for v, best in zip(places, ids, strict=True))
        texts.append(Scored(tuple(row), logprobs, ids, tops))
    golden = (Golden("abc", tuple(ord(letter) % VOCABULARY for letter in "abc")),)
    before = Counterfactual("unchanged", ("all",), _numbers(rows, parent))
    return Probe(SCHEMA, "float32", tuple(texts), (before,), golden)


def _judge(engine: FakeEngine, probe: Probe) -> Report:
    with Engine(engine.url) as client:
        assert client.model == "fake"
        return judge(probe, observe(client, probe))


def test_an_engine_that_computes_the_same_passes(engine: FakeEngine) -> None:
    report = _judge(engine, _probe())
    assert report.passed, report.diagnosis
    assert (report.numbers.max, report.numbers.top1, report.golden_compared) == (pytest.approx(0), 1.0, 1)
    assert report.moved is True


def test_an_engine_that_did_not_move_is_told(engine: FakeEngine) -> None:
    engine.seed = 1
    assert _judge(engine, _probe()).diagnosis.cause is Cause.NOT_MOVED


@pytest.mark.fault("S8")
def test_a_prefix_cache_from_before_the_swap_is_told(engine: FakeEngine) -> None:
    engine.remembers, engine.seed = True, 1
    probe = _probe()
    with Engine(engine.url) as client:
        warm_up(client, probe)
    engine.seed = 0
    report = _judge(engine, probe)
    assert (report.diagnosis.cause, report.breaches) == (Cause.STALE_PREFIX_CACHE, ())


def test_a_server_that_has_only_echo_is_judged_by_it(engine: FakeEngine) -> None:
    engine.only_echo, engine.tokenizes = True, False
    report = _judge(engine, _probe())
    assert report.passed
    assert report.golden_compared == 0


def test_a_server_that_refuses_what_openai_has_not_is_judged_by_the_rest(engine: FakeEngine) -> None:
    engine.strict = True
    assert _judge(engine, _probe()).passed
    engine.seed = 1
    assert _judge(engine, _probe()).diagnosis.cause is Cause.NOT_MOVED


def test_long_prompts_share_no_beginning_and_fit_the_engine() -> None:
    prompts = warm_prompts(_probe(), 200)
    assert len({tuple(prompt[:12]) for prompt in prompts}) == len(prompts) == 4
    assert {len(prompt) for prompt in prompts} == {191}


def test_an_engine_that_fails_is_an_error_and_not_a_verdict(engine: FakeEngine) -> None:
    engine.fails = True
    with pytest.raises(EngineError, match="answered 500"):
        _judge(engine, _probe())


def test_an_engine_that_is_not_there_is_an_error_with_its_address() -> None:
    with pytest.raises(EngineError, match="cannot be reached"), Engine("127.0.0.1:9"):
        pass


def test_an_engine_without_a_model_is_told(engine: FakeEngine) -> None:
    engine.serves_models = False
    with pytest.raises(EngineError, match="serves no model"), Engine(engine.url):
        pass
