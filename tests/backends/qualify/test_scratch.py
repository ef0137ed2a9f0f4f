"""Scratch engines: ready or refused with a reason, and gone afterwards. With a stand-in for vLLM."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from backends.qualify.scratch import Scratch, ScratchFailed, scratch_engine
from backends.settings import Device, EngineSettings
from backends.vllm.install import find_engine
from tests.stand_in_vllm import install


def scratch(tmp_path: Path, start_timeout_s: float = 60, **variables: str) -> Scratch:
    venv = install(tmp_path / "venv")
    environment = {**os.environ, "CHANGEOVER_ENGINE_VENV": str(venv), **variables}  # noqa: TID251 (inherited)
    settings = EngineSettings(model="m", start_timeout_s=start_timeout_s)
    return Scratch(settings, find_engine(environment, Device.AUTO), environment)


async def test_a_scratch_engine_answers_behind_its_guard_and_leaves_nothing(tmp_path: Path) -> None:
    async with scratch_engine(scratch(tmp_path), tmp_path) as running:
        status = await running.control.guard()
        place = running.socket.parent
        assert place.exists()

    assert status.version == "scratch"
    assert not place.exists()


async def test_an_engine_that_ends_while_it_starts_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ScratchFailed, match="out of memory"):
        async with scratch_engine(scratch(tmp_path, STAND_IN_EXIT="std::bad_alloc"), tmp_path):
            pytest.fail("it is not ready")


async def test_an_engine_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ScratchFailed, match=r"not ready within 0\.5 s"):
        async with scratch_engine(scratch(tmp_path, 0.5, STAND_IN_DEAF="1"), tmp_path):
            pytest.fail("it is not ready")


async def test_what_goes_wrong_with_it_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        async with scratch_engine(scratch(tmp_path), tmp_path):
            raise LookupError


async def test_cancelling_ends_the_engine(tmp_path: Path) -> None:
    place: Path | None = None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit, scratch_engine(scratch(tmp_path), tmp_path) as running:
            place = running.socket.parent
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

    assert place is not None
    assert not place.exists()
