"""The bare reload: its order, its bounds, and what is known when a step fails. S3, S9 of the catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule
from backends.vllm.command import TcpListen
from backends.vllm.control import EngineControl
from backends.vllm.reload import ReloadFailed, Step, reload_in_place
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually

TOKEN = "t"
PATHS = {
    Step.PAUSE: "/pause",
    Step.LOAD: "/collective_rpc",
    Step.RESET: "/reset_prefix_cache",
    Step.LABEL: "/update_weight_version",
    Step.RESUME: "/resume",
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "weights-b"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@asynccontextmanager
async def controlled(behaviour: Behaviour) -> AsyncIterator[tuple[Fake, EngineControl]]:
    async with Fake.start(behaviour) as fake:
        parts = urlsplit(fake.url)
        listen = TcpListen(parts.hostname or "", parts.port or 0)
        async with EngineControl(listen, TOKEN) as control:
            yield fake, control


def steps(fake: Fake) -> list[str]:
    return [event["path"] for event in fake.stats.events if event["event"] == "control"]


async def test_the_steps_come_in_order_and_end_with_the_new_weights_and_label(checkpoint: Path) -> None:
    async with controlled(Behaviour(version="old", control_token=TOKEN)) as (fake, control):
        timings = await reload_in_place(control, checkpoint, label="v2-00000000", timeout_s=10)
        answer = (await ask(fake.url, "/v1/completions", {"prompt": "x", "max_tokens": 2})).json()

    assert steps(fake) == list(PATHS.values())
    assert "weights-b" in answer["choices"][0]["text"]
    assert timings.total > 0


@pytest.mark.fault("S3")
@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"cut": Cut(how=Ending.RESET, after=Point.NOTHING)},
        {"cut": Cut(how=Ending.CLOSE, after=Point.BYTES, count=3)},
        {"cut": Cut(how=Ending.SILENCE, after=Point.NOTHING)},
    ],
    ids=["500", "reset", "half an answer", "hang"],
)
async def test_whichever_step_fails_the_error_names_it_and_what_is_known(
    checkpoint: Path, step: Step, fault: dict[str, object]
) -> None:
    rule = Rule(paths=(PATHS[step],), **fault)  # type: ignore[arg-type]
    async with controlled(Behaviour(rules=(rule,), control_token=TOKEN)) as (fake, control):
        with pytest.raises(ReloadFailed) as failed:
            await reload_in_place(control, checkpoint, label="v2-00000000", timeout_s=0.5, wait_s=0.1)

    assert failed.value.step is step
    assert failed.value.weights_known is (step is Step.PAUSE)
    if step is Step.PAUSE:
        assert "/collective_rpc" not in steps(fake), "nothing was loaded into an engine that still runs"


async def test_an_engine_that_could_not_be_paused_is_not_left_paused(checkpoint: Path) -> None:
    rule = Rule(paths=("/pause",), cut=Cut(how=Ending.SILENCE, after=Point.NOTHING))
    async with controlled(Behaviour(rules=(rule,), control_token=TOKEN)) as (fake, control):
        with pytest.raises(ReloadFailed):
            await reload_in_place(control, checkpoint, label="v2-00000000", timeout_s=0.3, wait_s=0.1)
        answered = await ask(fake.url, "/v1/completions", {"prompt": "x", "max_tokens": 2})

    assert answered.status == 200


@pytest.mark.fault("S9")
async def test_a_cache_that_cannot_be_emptied_is_tried_again_and_then_fails_the_reload(
    checkpoint: Path,
) -> None:
    behaviour = Behaviour(reset_prefix_cache_succeeds=False, control_token=TOKEN)
    async with controlled(behaviour) as (fake, control):
        with pytest.raises(ReloadFailed, match="prefix cache") as failed:
            await reload_in_place(control, checkpoint, label="v2-00000000", timeout_s=10)

    assert not failed.value.weights_known
    assert steps(fake).count("/reset_prefix_cache") > 1
    assert "/resume" not in steps(fake), "nobody may be answered from a stale cache"


async def test_a_request_that_outlasts_the_wait_is_aborted(checkpoint: Path) -> None:
    async with controlled(Behaviour(tokens_per_s=1, control_token=TOKEN)) as (fake, control):
        request = ask(fake.url, "/v1/completions", {"prompt": "x", "max_tokens": 1000})
        async with asyncio.TaskGroup() as group:
            running = group.create_task(request, name="request")
            await eventually(lambda: fake.stats.in_flight == 1)
            await reload_in_place(control, checkpoint, label="v2-00000000", timeout_s=10, wait_s=0.1)
            ended = await running

    assert len(ended.json()["choices"][0]["text"].split()) < 1000


async def test_a_folder_that_is_gone_never_reaches_the_engine(tmp_path: Path) -> None:
    async with controlled(Behaviour(control_token=TOKEN)) as (fake, control):
        with pytest.raises(ReloadFailed, match="holds no checkpoint") as failed:
            await reload_in_place(control, tmp_path / "gone", label="v2-00000000", timeout_s=10)

    assert failed.value.weights_known
    assert "/collective_rpc" not in steps(fake)
