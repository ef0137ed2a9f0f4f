"""Finding vLLM on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.settings import Device
from backends.vllm.install import EngineMissing, find_engine


def install(venv: Path, *, stamp: str | None = None) -> Path:
    (venv / "bin").mkdir(parents=True)
    for name in ("vllm", "python"):
        (venv / "bin" / name).touch(mode=0o755)
    if stamp is not None:
        (venv / "changeover-setup.json").write_text(stamp)
    return venv


def test_the_environment_beside_the_sources_is_found(tmp_path: Path) -> None:
    venv = install(tmp_path / ".venv-engine", stamp='{"device": "cpu"}')

    found = find_engine({}, Device.AUTO, source_root=tmp_path)

    assert (found.vllm, found.python, found.device) == (venv / "bin/vllm", venv / "bin/python", Device.CPU)


def test_the_one_that_is_named_wins(tmp_path: Path) -> None:
    install(tmp_path / ".venv-engine", stamp='{"device": "cpu"}')
    named = install(tmp_path / "other", stamp='{"device": "cuda"}')

    found = find_engine({"CHANGEOVER_ENGINE_VENV": str(named)}, Device.AUTO, source_root=tmp_path)

    assert (found.vllm, found.device) == (named / "bin/vllm", Device.CUDA)


def test_vllm_on_the_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = install(tmp_path / "image")
    monkeypatch.chdir(tmp_path)

    found = find_engine({"PATH": str(elsewhere / "bin")}, Device.CPU, source_root=tmp_path / "src")

    assert found.vllm == elsewhere / "bin/vllm"


def test_the_device_that_is_set_is_not_guessed(tmp_path: Path) -> None:
    install(tmp_path / ".venv-engine", stamp='{"device": "cpu"}')

    assert find_engine({}, Device.CUDA, source_root=tmp_path).device is Device.CUDA


def test_a_machine_without_vllm_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(EngineMissing, match="run `make setup-engine`"):
        find_engine({"PATH": str(tmp_path)}, Device.AUTO, source_root=tmp_path)
