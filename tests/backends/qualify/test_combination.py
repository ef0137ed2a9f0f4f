"""What a verdict holds for: everything that may change how weights are loaded, and nothing besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.qualify.combination import Combination, Surroundings, combine, differences
from backends.qualify.surroundings import combination_of, surroundings_of
from backends.settings import Device, EngineSettings
from backends.vllm.install import Installation
from checkpoints.tensors import Tensor
from tests.checkpoints.models import CONFIG, write_model

SETTINGS = EngineSettings(model="m")
HERE = Surroundings("vllm 0.32.0", "cpu x86_64")
TENSORS = (Tensor("a", "BF16", (2, 2), 0, 8), Tensor("b", "BF16", (2,), 8, 12))


def combination(
    settings: EngineSettings = SETTINGS,
    environment: dict[str, str] | None = None,
    here: Surroundings = HERE,
    config: dict[str, object] | None = None,
    tensors: tuple[Tensor, ...] = TENSORS,
) -> Combination:
    return combine(settings, environment or {}, here, config={**CONFIG, **(config or {})}, tensors=tensors)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"here": Surroundings("vllm 0.33.0", "cpu x86_64")}, "engine vllm 0.33.0 instead of vllm 0.32.0"),
        ({"here": Surroundings("vllm 0.32.0", "cuda NVIDIA H200")}, "device"),
        ({"settings": EngineSettings(model="m", tensor_parallel_size=2)}, "tensor_parallel 2 instead of 1"),
        ({"settings": EngineSettings(model="m", eager=False)}, "compiled True instead of False"),
        ({"settings": EngineSettings(model="m", dtype="float16")}, "dtype float16"),
        ({"settings": EngineSettings(model="m", enable_lora=True)}, "another options"),
        ({"settings": EngineSettings(model="m", extra_args=("--quantization", "fp8"))}, "another options"),
        ({"settings": EngineSettings(model="m", env={"VLLM_USE_X": "1"})}, "another options"),
        ({"environment": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}}, "multiprocessing False"),
        ({"environment": {"VLLM_CPU_SGL_KERNEL": "1"}}, "another options"),
        ({"config": {"tie_word_embeddings": True}}, "another config"),
        ({"config": {"hidden_size": 32}}, "another config"),
        ({"config": {"dtype": "float32"}}, "dtype auto float32"),
        ({"config": {"quantization_config": {"quant_method": "gptq"}}}, "quantization gptq"),
        ({"tensors": TENSORS[:1]}, "another tensors"),
        ({"tensors": (TENSORS[0], Tensor("b", "F32", (2,), 8, 16))}, "another tensors"),
    ],
)
def test_what_may_change_the_reload_is_another_combination(changed: dict[str, object], said: str) -> None:
    other = combination(**changed)  # type: ignore[arg-type]

    assert other.key != combination().key
    assert any(said in word for word in differences(other, combination()))


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": EngineSettings(model="another", replicas=3, kv_cache_gib=2.0, max_batch_size=8)},
        {"environment": {"PATH": "/bin", "VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_SERVER_DEV_MODE": "1"}},
        {"config": {"transformers_version": "9", "use_cache": False, "eos_token_id": 7}},
        {"tensors": tuple(Tensor(t.name, t.dtype, t.shape, t.start + 8, t.end + 8) for t in TENSORS[::-1])},
    ],
    ids=["sizes", "logging", "who wrote it", "order in the file"],
)
def test_what_does_not_concern_the_weights_is_the_same_combination(changed: dict[str, object]) -> None:
    assert combination(**changed) == combination()  # type: ignore[arg-type]


def test_a_folders_other_numbers_are_the_same_combination_and_its_untied_form_is_not(tmp_path: Path) -> None:
    tied = {**CONFIG, "tie_word_embeddings": True}
    folders = [
        write_model(tmp_path / "a", config=tied, seed=1),
        write_model(tmp_path / "b", config=tied, seed=2, shards=2),
        write_model(tmp_path / "c", config=CONFIG, seed=1),
    ]
    first, second, untied = (combination_of(folder, SETTINGS, {}, HERE) for folder in folders)

    assert first == second
    assert first != untied


def test_the_engines_packages_are_read_from_its_environment(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("vllm-0.32.0+cpu", "torch-2.13.0+cpu", "rich-1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    engine = Installation(tmp_path / "bin" / "vllm", tmp_path / "bin" / "python", Device.CPU)

    found = surroundings_of(engine)

    assert found.engine == "vllm 0.32.0+cpu torch 2.13.0+cpu"
    assert found.device.startswith("cpu ")
