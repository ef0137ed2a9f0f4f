"""From what the settings call a model to what an engine is given."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends.models.resolve import ModelUnusable, ResolvedModel, resolve_model, served_name
from backends.models.version import launch_version
from backends.settings import EngineSettings


def resolve(tmp_path: Path, **settings: object) -> ResolvedModel:
    engine = EngineSettings.model_validate(settings)
    return resolve_model(
        engine, cache=tmp_path / "cache", engine_python=Path("/no/python"), report=lambda line: None
    )


def write_model(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_bytes(msgspec.json.encode({"num_attention_heads": 9, **config}))
    (folder / "model.safetensors").write_bytes(bytes(100_000))
    return folder


def test_the_tiny_model_is_made_without_an_engine(tmp_path: Path) -> None:
    model = resolve(tmp_path, model="tiny-llama")

    assert model.local
    assert (Path(model.source) / "model.safetensors").exists()


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine")

    assert resolve(tmp_path, model=str(folder)) == ResolvedModel(str(folder), local=True)


def test_a_folder_that_exists_is_no_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)

    assert resolve(tmp_path, model="org/name") == ResolvedModel(str(tmp_path / "org" / "name"), local=True)


def test_a_hub_id_is_left_to_the_engine(tmp_path: Path) -> None:
    assert resolve(tmp_path, model="org/name") == ResolvedModel("org/name", local=False)


def test_a_folder_that_is_not_there_is_refused_with_what_may_be_given(tmp_path: Path) -> None:
    with pytest.raises(
        ModelUnusable, match=r"there is no such folder\. Give a built-in model \(smollm2-135m"
    ):
        resolve(tmp_path, model="/no/such/model")


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"it has no config\.json"):
        resolve(tmp_path, model=str(tmp_path))


def test_a_tensor_parallel_size_that_does_not_divide_the_model_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "nine-heads")

    with pytest.raises(ModelUnusable, match="Sizes that work: 1, 3, 9"):
        resolve(tmp_path, model=str(folder), tensor_parallel_size=2)


def test_clients_know_a_model_by_the_last_part_of_its_name() -> None:
    assert served_name(EngineSettings(model="/models/mine/")) == "mine"
    assert served_name(EngineSettings(model="org/name")) == "name"
    assert served_name(EngineSettings(model="org/name", served_name="other")) == "other"


def test_equal_files_are_one_version_wherever_they_lie(tmp_path: Path) -> None:
    versions = {
        launch_version(ResolvedModel(str(write_model(tmp_path / name)), local=True)) for name in ("a", "b")
    }

    assert len(versions) == 1
    assert versions.pop().startswith("base-")


def test_other_weights_of_the_same_shape_are_another_version(tmp_path: Path) -> None:
    model = ResolvedModel(str(write_model(tmp_path / "a")), local=True)
    before = launch_version(model)
    weights = tmp_path / "a" / "model.safetensors"
    weights.write_bytes(bytes(50_000) + b"\x01" * 50_000)

    assert launch_version(model) != before
