"""Qualifying beside a running engine: once, by one process, and never at the cost of the backend."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import pytest

from backends.qualify.background import Background
from backends.qualify.oracle import combination_with
from backends.qualify.records import keep
from backends.settings import Device, EngineSettings
from backends.vllm.install import find_engine
from checkpoints.store.local import LocalFiles
from tests.backends.qualify.test_records import record
from tests.checkpoints.models import write_model
from tests.stand_in_vllm import install

SETTINGS = EngineSettings(model="m")


class Scene:
    def __init__(self, root: Path) -> None:
        self.folder = write_model(root / "model")
        self.files = LocalFiles(root / "store")
        venv = install(root / "venv")
        self.environment = {
            **os.environ,  # noqa: TID251 (engines inherit it)
            "CHANGEOVER_ENGINE_VENV": str(venv),
            "STAND_IN_EXIT": "std::bad_alloc",
        }
        self.lock = root / "lock"
        self.background = Background(self.files, SETTINGS, self.environment, self.lock)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_an_engine_for_which_there_is_no_memory_is_tried_once_and_harms_nobody(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await scene.background.qualify(scene.folder)
    await scene.background.qualify(scene.folder)

    warnings = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "out of memory" in warnings[0]


async def test_what_has_a_record_is_not_tried(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = find_engine(scene.environment, Device.AUTO)
    keep(scene.files, record(combination_with(scene.folder, SETTINGS, engine, scene.environment)))
    await scene.background.qualify(scene.folder)

    assert not caplog.records


async def test_while_another_backend_of_the_machine_tries_this_one_does_not(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with scene.lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await scene.background.qualify(scene.folder)
        assert not caplog.records

    await scene.background.qualify(scene.folder)
    assert caplog.records
