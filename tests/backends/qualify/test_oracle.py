"""The whole trial on real engines: right where a reload is right, wrong where vLLM leaves something stale."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from backends.qualify.judge import Verdict
from backends.qualify.oracle import combination_with, qualify
from backends.qualify.record import Record
from backends.qualify.records import find
from backends.settings import Device, EngineSettings
from backends.vllm.install import find_engine
from checkpoints.store.local import LocalFiles
from tests.engines import require_engine
from tests.oracle.models import LLAMA, LLAMA_TIED, write_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

ENVIRONMENT = dict(os.environ)  # noqa: TID251 (engines inherit it)


async def tried(folder: Path, files: LocalFiles) -> Record:
    require_engine()
    settings = EngineSettings(model=str(folder), served_name="m", replicas=1, kv_cache_gib=0.25)
    return await qualify(folder, settings, environment=ENVIRONMENT, files=files)


@pytest.mark.long
@pytest.mark.fault("S1")
async def test_an_untied_llama_is_qualified_and_its_record_holds_for_it_alone(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "store")
    folder = write_model(tmp_path / "model", LLAMA, seed=1)

    record = await tried(folder, files)

    assert record.verdict is Verdict.QUALIFIED, record.reason
    assert all(check.difference.equal for check in record.checks), "bit for bit"
    settings = EngineSettings(model="another-name", replicas=2)
    engine = find_engine(ENVIRONMENT, Device.AUTO)
    next_step = write_model(tmp_path / "next", LLAMA, seed=2)
    assert find(files, combination_with(next_step, settings, engine, ENVIRONMENT)) == record
    other_mode = settings.model_copy(update={"tensor_parallel_size": 2})
    assert find(files, combination_with(next_step, other_mode, engine, ENVIRONMENT)) is None
    newer = msgspec.structs.replace(record.combination, engine="vllm 9.9")
    assert find(files, newer) is None


@pytest.mark.long
@pytest.mark.fault("S13")
async def test_a_tied_llama_is_found_wrong_although_a_to_a_and_back_look_right(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "store")
    folder = write_model(tmp_path / "model", LLAMA_TIED, seed=1)

    record = await tried(folder, files)

    assert record.verdict is Verdict.WRONG
    assert record.floor is not None
    assert record.floor.equal, "two cold starts agree: it is not noise"
    outcomes = {check.name: check.passed for check in record.checks}
    assert outcomes["A->A against cold A"]
    assert not outcomes["A->B against cold B"]
    assert find(files, record.combination) == record
