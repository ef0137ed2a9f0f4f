"""Real vLLM behind the guard, kept by the agent: what the rest of the project counts on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from backends.contract import VERSION_HEADER
from backends.vllm.guard import OPEN_PATHS, WORK_PATHS
from tests.engines import ROOT, EnginesUnderTest, EngineUnderTest, require_engine, start_engines

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

NOT_FOUND = {"error": {"message": "Not Found", "type": "not_found", "param": None, "code": 404}}
GREEDY = {"model": "tiny-llama", "prompt": "Hello", "max_tokens": 8, "temperature": 0}


@pytest.fixture
def engine(tiny_engines: EnginesUnderTest) -> EngineUnderTest:
    return tiny_engines.engines[0]


def complete(engine: EngineUnderTest) -> str:
    with engine.http() as client:
        response = client.post("/v1/completions", json=GREEDY)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


def test_two_engines_of_one_model_answer_alike_and_name_the_same_version(
    tiny_engines: EnginesUnderTest,
) -> None:
    first, second = tiny_engines.engines

    assert complete(first) == complete(second)
    assert len(complete(first)) == 8, "one printable character a token"
    assert first.status().version == second.status().version


def test_every_answer_carries_the_version_streams_included(engine: EngineUnderTest) -> None:
    version = engine.status().version
    with engine.http() as client:
        models = client.get("/v1/models")
        refused = client.post("/v1/completions", json={"model": "no-such-model", "prompt": "x"})
        with client.stream("POST", "/v1/completions", json={**GREEDY, "stream": True}) as stream:
            streamed = stream.headers[VERSION_HEADER]
            events = [line for line in stream.iter_lines() if line]

    assert {models.headers[VERSION_HEADER], refused.headers[VERSION_HEADER], streamed} == {version}
    assert refused.status_code == 404
    assert events[-1] == "data: [DONE]"
    assert len(events) >= 8


def test_every_control_path_that_this_vllm_has_is_closed_without_the_token(engine: EngineUnderTest) -> None:
    with engine.http() as client, engine.http(token=engine.token) as trusted:
        described = trusted.get("/openapi.json").json()["paths"]
        closed = {
            path
            for path, methods in described.items()
            for method in methods
            if client.request(method.upper(), path).headers.get("content-type") == "application/json"
            and client.request(method.upper(), path).json() == NOT_FOUND
        }

    assert {"/pause", "/collective_rpc", "/update_weight_version", "/reset_prefix_cache", "/sleep"} <= closed
    assert set(described) - closed <= WORK_PATHS | OPEN_PATHS


def test_a_paused_engine_is_resumed_with_the_token_only(engine: EngineUnderTest) -> None:
    with engine.http() as client, engine.http(token=engine.token) as trusted:
        assert client.post("/pause").status_code == 404
        assert trusted.post("/pause").json() == {"status": "paused"}
        assert trusted.get("/is_paused").json()["is_paused"] is True
        assert trusted.post("/resume").json() == {"status": "resumed"}

    assert complete(engine)


def test_an_engine_that_is_killed_comes_back_with_the_same_answers(engine: EngineUnderTest) -> None:
    before, text = engine.status(), complete(engine)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    after = engine.wait_ready(lambda status: status.restarts > before.restarts)

    assert after.version == before.version
    assert complete(engine) == text


@pytest.fixture(scope="module")
def parallel(tiny_engines: EnginesUnderTest) -> Iterator[EngineUnderTest]:
    for started in start_engines(1, tensor_parallel_size=2):
        yield started.engines[0]


def test_an_engine_divided_among_two_processes_answers_as_one(parallel: EngineUnderTest) -> None:
    assert len(complete(parallel)) == 8


def test_a_model_that_cannot_be_divided_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    require_engine()
    config = tmp_path / "infer_config.yaml"
    engine = {"model": "smollm2-135m-instruct", "replicas": 1, "tensor_parallel_size": 2}
    config.write_bytes(msgspec.json.encode({"run_dir": str(tmp_path / "run"), "engine": engine}))

    done = subprocess.run(
        (sys.executable, "-m", "gateway", "backend", "--config", str(config)),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # noqa: TID251 (passed on)
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 1
    assert "it has 9 attention heads and 3 KV heads" in done.stderr
    assert "Sizes that work: 1, 3" in done.stderr
    assert not (tmp_path / "logs").exists()
