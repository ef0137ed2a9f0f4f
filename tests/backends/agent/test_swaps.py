"""Swaps under traffic, with an engine that stands in for vLLM: what goes right, and each step going wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest

from backends.contract import InFlight, Outcome, Phase, State, Way
from tests.backends.agent.swapped import LIMIT_S, swapping
from tests.drivers.waiting import eventually

STEPS = (
    "/pause",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/update_weight_version",
    "/resume",
    "/v1/models after load",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since sockets lie in it."""
    with TemporaryDirectory(prefix="co-") as name:
        yield Path(name)


async def test_weights_change_under_traffic_and_no_answer_is_stale_or_mixed(folder: Path) -> None:
    async with swapping(folder) as agent:
        labels = [await agent.serves()]
        for version in (1, 2, 2, 1, 0):
            status = await agent.swap(version=version)
            assert (status.outcome, status.way) == (Outcome.SERVING_NEW, Way.IN_PLACE), status
            labels.append(await agent.serves())
        pid = agent.backend.status().pid

        assert [label.partition("-")[0] for label in labels] == ["base", "v1", "v2", "v2", "v1", "base"]
        assert labels[2] == labels[3]
        assert agent.backend.status().restarts == 0
        assert pid is not None
        agent.traffic.check()


@pytest.mark.fault("S3")
@pytest.mark.parametrize("how", ["fails", "hangs", "half", "dies"])
async def test_whatever_step_of_a_swap_goes_wrong_no_wrong_answer_is_given(folder: Path, how: str) -> None:
    async with swapping(folder) as agent:
        for step in STEPS:
            agent.meet(**{step: how})
            status = await agent.swap(version=1, deadline_s=1.2)
            await agent.ready()
            assert status.outcome in (Outcome.SERVING_OLD, Outcome.RESTARTING), (step, status)
            assert (await agent.serves()).startswith("base-"), step
        agent.meet()
        assert (await agent.swap(version=1)).outcome is Outcome.SERVING_NEW
        agent.traffic.check()


@pytest.mark.fault("S9")
async def test_a_cache_that_cannot_be_emptied_fails_the_swap(folder: Path) -> None:
    async with swapping(folder) as agent:
        agent.meet(**{"/reset_prefix_cache": "always lies"})
        status = await agent.swap(version=1)
        assert status.outcome is Outcome.RESTARTING
        assert "could not be emptied" in status.reason
        agent.meet()
        assert (await agent.serves()).startswith("base-")
        agent.traffic.check()


async def test_an_engine_that_only_says_that_it_loaded_is_found_out(folder: Path) -> None:
    async with swapping(folder) as agent:
        agent.meet(**{"/collective_rpc": "lies"})
        status = await agent.swap(version=1)
        assert status.outcome is Outcome.SERVING_OLD
        assert "nothing moved" in status.reason
        agent.traffic.check()


@pytest.mark.fault("S4")
async def test_an_engine_that_dies_comes_back_on_what_should_be_served(folder: Path) -> None:
    async with swapping(folder) as agent:
        await agent.serves()
        agent.store.point("serving", 2, by="test")
        agent.meet(start="fails")
        pid = agent.backend.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: agent.traffic.answers[-1][0].startswith("v2-"), within=LIMIT_S)
        await agent.serves()
        labels = [label.partition("-")[0] for label, _ in agent.traffic.answers]
        assert [label for label, _ in groupby(labels)] == ["base", "v2"]
        agent.traffic.check()


async def test_without_a_record_the_engine_is_restarted_and_the_status_says_why(folder: Path) -> None:
    async with swapping(folder, qualified=False) as agent:
        status = await agent.swap(version=1)
        assert (status.outcome, status.way) == (Outcome.SERVING_NEW, Way.RESTART)
        assert "not qualified" in status.reason
        assert (await agent.serves()).startswith("v1-")
        refused = await agent.swap(version=2, way=Way.IN_PLACE)
        assert (refused.outcome, refused.phase) == (Outcome.SERVING_OLD, Phase.ENDED)
        assert refused.out_of_rotation_s == 0
        agent.traffic.check()


async def test_a_version_on_which_no_engine_starts_leaves_the_old_one_serving(folder: Path) -> None:
    async with swapping(folder, qualified=False) as agent:
        agent.meet(start="fails")
        status = await agent.swap(version=1)
        assert (status.outcome, status.way) == (Outcome.SERVING_OLD, Way.RESTART)
        assert (await agent.serves()).startswith("base-")
        agent.traffic.check()


async def test_a_held_member_answers_nobody_until_it_is_released(folder: Path) -> None:
    async with swapping(folder) as agent:
        order = await agent.begin(version=1, hold=True)
        await agent.comes_to(order, Phase.HELD)
        before = len(agent.traffic.answers)
        async with agent.traffic.client() as client:
            assert await agent.traffic.ask(client) == 503
        assert len(agent.traffic.answers) == before
        agent.store.point("serving", 1, by="test")
        assert (await agent.backend.release(order.id)).outcome is Outcome.SERVING_NEW
        assert (await agent.serves()).startswith("v1-")
        agent.traffic.check()


async def test_a_held_member_that_nobody_releases_goes_back(folder: Path) -> None:
    async with swapping(folder) as agent:
        status = await agent.swap(version=1, hold=True, deadline_s=2.0)
        assert status.outcome is Outcome.SERVING_OLD
        assert (await agent.serves()).startswith("base-")
        agent.traffic.check()


async def test_a_held_member_may_be_sent_back_by_another_swap(folder: Path) -> None:
    async with swapping(folder) as agent:
        order = await agent.begin(version=1, hold=True)
        await agent.comes_to(order, Phase.HELD)
        status = await agent.swap(version=0)
        assert status.outcome is Outcome.SERVING_NEW
        assert agent.backend.swap_status(order.id).outcome is Outcome.SERVING_OLD
        assert (await agent.serves()).startswith("base-")
        agent.traffic.check()


@pytest.mark.fault("S7")
@pytest.mark.parametrize("then", [InFlight.ABORT, InFlight.CONTINUE])
async def test_a_long_stream_is_waited_for_and_then_ended(folder: Path, then: InFlight) -> None:
    async with swapping(folder) as agent, agent.traffic.client() as client:
        path = str(folder / "never").encode()
        async with client.stream("POST", "/v1/completions", content=path) as stream:
            pieces = stream.aiter_bytes()
            assert await anext(pieces) == b"begun "
            status = await agent.swap(version=1, wait_s=0.2, then=then)
            assert (status.outcome, status.aborted) == (Outcome.SERVING_NEW, 1)
            rest = await _rest(pieces)
        assert (rest is not None and b"weights_changed" in rest) is (then is InFlight.ABORT)
        agent.traffic.check()


@pytest.mark.fault("S7")
async def test_a_stream_that_ends_in_time_ends_whole_on_the_old_weights(folder: Path) -> None:
    async with swapping(folder) as agent, agent.traffic.client() as client:
        path = folder / "go-on"
        async with client.stream("POST", "/v1/completions", content=str(path).encode()) as stream:
            pieces = stream.aiter_bytes()
            await anext(pieces)
            order = await agent.begin(version=1)
            await agent.comes_to(order, Phase.DRAINING)
            path.touch()
            assert await _rest(pieces) == b"done"
            assert stream.headers["x-model-version"].startswith("base-")
        status = await agent.end_of(order)
        assert (status.outcome, status.aborted) == (Outcome.SERVING_NEW, 0)


async def _rest(pieces: AsyncIterator[bytes]) -> bytes | None:
    """What still came; None: the connection was cut."""
    rest = b""
    try:
        async for piece in pieces:
            rest += piece
    except httpx2.TransportError:
        return None
    return rest


async def test_a_drained_member_stays_drained_after_a_swap(folder: Path) -> None:
    async with swapping(folder) as agent:
        await agent.backend.set_draining(True)
        assert (await agent.swap(version=1)).outcome is Outcome.SERVING_NEW
        assert agent.backend.status().state is State.DRAINING
        await agent.backend.set_draining(False)
        assert (await agent.serves()).startswith("v1-")
