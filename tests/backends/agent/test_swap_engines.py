"""Swaps of real vLLM engines: warm equals cold, and whatever dies, what should be served is served.

Cold answers come from engines that were started on the weights; warm ones after reloads in place, asked twice
so that prefixes come out of the cache.
"""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from backends.agent.assignment import assign
from backends.agent.qualified import Qualified
from backends.contract import VERSION_HEADER, InFlight, Outcome, Phase, SwapOrder, SwapStatus, Way
from backends.models.tiny import HEAD_DIM, HIDDEN, KV_HEADS, LAYERS, write_tiny_llama
from backends.qualify.judge import Verdict
from backends.qualify.record import SCHEMA, Record
from backends.qualify.records import keep
from backends.settings import Checkpoints, EngineSettings
from checkpoints.draft import Request
from checkpoints.publish import publish
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from tests.checkpoints.models import random_tensor, safetensors, write_json
from tests.engines import MODEL, EngineUnderTest, start_engines

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

LIMIT_S = 400
LONG = "The quick brown fox jumps over the lazy dog. " * 8
"""Longer than two blocks of the prefix cache, a token a character."""
PROMPTS = ("Hello", LONG, LONG + "And then?")
VARIANTS = {
    "tp1": {"tensor_parallel_size": 1, "eager": True},
    "tp2": {"tensor_parallel_size": 2, "eager": True},
    "compiled": {"tensor_parallel_size": 1, "eager": False},
}
BASE, NEW = 0, 1


@dataclass(frozen=True)
class Swapped:
    """One real engine whose base is `tiny-llama`, and a store with one version of quite other weights."""

    engine: EngineUnderTest
    store: Store

    def ask(self, prompt: str) -> tuple[str, Any]:
        """The label, and all that can be compared: text and log-probabilities."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 3}
        with self.engine.http() as client:
            response = client.post("/v1/completions", json=body, timeout=LIMIT_S)
        assert response.status_code == 200, response.text
        choice = response.json()["choices"][0]
        return response.headers[VERSION_HEADER], (choice["text"], choice["logprobs"]["token_logprobs"])

    def answers(self) -> list[Any]:
        """Out of an empty cache and out of a filled one."""
        return [self.ask(prompt)[1] for _ in range(2) for prompt in PROMPTS]

    def begin(self, **order: Any) -> SwapOrder:
        wanted = SwapOrder(**{"id": secrets.token_hex(4), "version": NEW, **order})
        with self.engine.http(control=True) as client:
            response = client.post("/swap", content=msgspec.json.encode(wanted))
        assert response.status_code == 202, response.text
        return wanted

    def comes_to(self, order: SwapOrder, holds: Callable[[SwapStatus], bool]) -> SwapStatus:
        deadline = time.monotonic() + LIMIT_S
        with self.engine.http(control=True) as client:
            while time.monotonic() < deadline:
                status = msgspec.json.decode(client.get(f"/swap/{order.id}").content, type=SwapStatus)
                if holds(status):
                    return status
                time.sleep(0.005)
        raise AssertionError(f"it never came to that: {status}\n{self.engine.printed()}")

    def swap(self, **order: Any) -> SwapStatus:
        wanted = self.begin(**order)
        return self.comes_to(wanted, lambda status: status.phase is Phase.ENDED)

    def kill(self) -> None:
        pid = self.engine.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def stream(self, tokens: int) -> Iterator[httpx2.Response]:
        body = {"model": MODEL, "prompt": "Hi", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        with self.engine.http() as client, client.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200, response.read()
            yield response


@contextmanager
def swapped(**engine: Any) -> Iterator[Swapped]:
    with tempfile.TemporaryDirectory(prefix="co-store-") as name:
        folder = Path(name)
        checkpoints = {"store": str(folder / "store"), "local": str(folder / "local")}
        store = open_store(checkpoints["store"], MODEL)
        source = folder / "new"
        source.mkdir()
        write_tiny_llama(source, seed=4711)
        assert publish(source, store, Request(run="run", step=1)).manifest.version == NEW
        started = start_engines(1, checkpoints=checkpoints, **engine)
        under_test = next(started)
        try:
            first = under_test.engines[0]
            settings = EngineSettings(**{"model": MODEL, "replicas": 1, "kv_cache_gib": 0.25, **engine})
            trust(store, first, settings, Checkpoints(**checkpoints))
            yield Swapped(first, store)
        finally:
            started.close()


def trust(store: Store, engine: EngineUnderTest, settings: EngineSettings, options: Checkpoints) -> None:
    """Write the record that a qualification would have left: these tests are one."""
    assignment = assign(
        settings,
        engine.place,
        token="",
        environment=dict(os.environ),  # noqa: TID251 (as the command does)
        report=print,
        checkpoints=options,
    )
    combination = Qualified(store, assignment.recipe).combination(assignment.base)
    assert combination is not None
    record = Record(
        SCHEMA, combination, Verdict.QUALIFIED, "by this test", (), None, None, 0.1, 1.0, "2026-11-30", "test"
    )
    keep(store.files, record)


@pytest.fixture(
    scope="module",
    params=["tp1", *(pytest.param(name, marks=pytest.mark.long) for name in ("tp2", "compiled"))],
)
def any_engine(request: pytest.FixtureRequest) -> Iterator[Swapped]:
    with swapped(**VARIANTS[request.param]) as found:
        yield found


@pytest.mark.fault("S1")
@pytest.mark.fault("S13")
def test_weights_that_were_swapped_in_place_answer_as_a_cold_start_does(any_engine: Swapped) -> None:
    old = any_engine.answers()
    cold = any_engine.swap(way=Way.RESTART)
    assert (cold.outcome, cold.way) == (Outcome.SERVING_NEW, Way.RESTART), cold
    new = any_engine.answers()
    assert [answer for answer, other in zip(old, new, strict=True) if answer == other] == []

    for version, wanted in ((BASE, old), (BASE, old), (NEW, new), (NEW, new), (BASE, old)):
        status = any_engine.swap(version=version)
        assert (status.outcome, status.way) == (Outcome.SERVING_NEW, Way.IN_PLACE), status
        assert any_engine.answers() == wanted
        assert any_engine.ask("x")[0] == status.version
    assert any_engine.engine.status().restarts == 1


@pytest.mark.fault("S7")
def test_a_stream_that_may_end_ends_whole_under_the_version_it_began_with(any_engine: Swapped) -> None:
    assert any_engine.swap(version=BASE).outcome is Outcome.SERVING_NEW
    with any_engine.stream(100) as stream:
        events = stream.iter_lines()
        first = next(events)
        order = any_engine.begin(wait_s=120)
        rest = [line for line in events if line]
    status = any_engine.comes_to(order, lambda status: status.phase is Phase.ENDED)

    assert first.startswith("data: ")
    assert rest[-1] == "data: [DONE]"
    # A fast engine puts several tokens into one event: the last one says that none is missing.
    assert '"finish_reason":"length"' in rest[-2]
    assert stream.headers[VERSION_HEADER].startswith("base-")
    assert (status.outcome, status.aborted) == (Outcome.SERVING_NEW, 0)
    assert any_engine.ask("x")[0] == status.version


@pytest.mark.long
@pytest.mark.fault("S7")
@pytest.mark.parametrize("then", [InFlight.ABORT, InFlight.CONTINUE])
def test_a_stream_that_is_too_long_is_ended_and_never_in_order(any_engine: Swapped, then: InFlight) -> None:
    version = BASE if any_engine.engine.status().version.startswith("v1-") else NEW
    with any_engine.stream(1900) as stream:
        events = stream.iter_lines()
        next(events)
        status = any_engine.swap(version=version, wait_s=0, then=then)
        rest: list[str] = []
        cut = False
        try:
            for line in filter(None, events):
                rest.append(line)
        except httpx2.TransportError:
            cut = True

    assert (status.outcome, status.aborted) == (Outcome.SERVING_NEW, 1), status
    assert "data: [DONE]" not in rest
    assert cut is (then is InFlight.CONTINUE)
    assert ("weights_changed" in rest[-1]) if then is InFlight.ABORT else True
    assert any_engine.ask("x")[0] == status.version


@pytest.mark.long
@pytest.mark.fault("S3")
@pytest.mark.fault("S4")
def test_an_engine_that_dies_in_mid_swap_comes_back_on_what_should_be_served() -> None:
    with swapped(**VARIANTS["tp1"]) as found:
        base = found.ask("x")
        order = found.begin(hold=True)
        found.comes_to(order, lambda status: status.phase in (Phase.LOADING, Phase.PROBING, Phase.WARMING))
        found.kill()
        ended = found.comes_to(order, lambda status: status.phase is Phase.ENDED)
        assert ended.outcome is Outcome.RESTARTING, ended
        found.engine.wait_ready()
        assert found.ask("x") == base

        held = found.begin(hold=True)
        found.comes_to(held, lambda status: status.phase is Phase.HELD)
        found.store.point("serving", NEW, by="test")
        found.kill()
        assert found.comes_to(held, lambda s: s.phase is Phase.ENDED).outcome is Outcome.RESTARTING
        status = found.engine.wait_ready()
        assert status.version.startswith("v1-")
        assert found.ask("x")[0] == status.version
        assert found.ask("x")[1] != base[1]


@pytest.fixture(scope="module")
def lora_engine() -> Iterator[Swapped]:
    with swapped(**VARIANTS["tp1"], enable_lora=True) as found:
        yield found


def write_lora(folder: Path, seed: int, rank: int = 8) -> Path:
    """An adapter of the tiny model's attention that changes what it says."""
    folder.mkdir()
    shapes = {"q_proj": (HIDDEN, HIDDEN), "v_proj": (KV_HEADS * HEAD_DIM, HIDDEN)}
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for layer in range(LAYERS):
        for at, (name, (rows, columns)) in enumerate(shapes.items()):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for half, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                data = random_tensor(shape, seed * 100 + layer * 10 + at)
                tensors[f"{prefix}.lora_{half}.weight"] = ("BF16", shape, data)
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 64,
        "target_modules": list(shapes),
        "bias": "none",
    }
    write_json(folder / "adapter_config.json", config)
    return folder


@pytest.mark.long
def test_an_adapter_takes_over_and_gives_back_without_a_pause(lora_engine: Swapped, tmp_path: Path) -> None:
    base = lora_engine.answers()
    answers = []
    for seed in (1, 2):
        source = write_lora(tmp_path / f"adapter-{seed}", seed)
        version = publish(source, lora_engine.store, Request(run="run", step=10 + seed)).manifest.version
        status = lora_engine.swap(version=version)
        assert (status.outcome, status.way) == (Outcome.SERVING_NEW, Way.ADAPTER), status
        assert status.out_of_rotation_s == 0
        label, answer = lora_engine.ask(LONG)
        assert label == status.version
        answers.append(answer)
    assert lora_engine.swap(version=BASE).way is Way.ADAPTER

    assert lora_engine.answers() == base
    assert base[1] not in answers
    assert answers[0] != answers[1]
    assert lora_engine.engine.status().restarts == 0
