"""The files and command lines that users bring, and what is said about mistakes in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from training.config.command_line import help_text, parse_arguments
from training.config.kinds import EngineKind, Method, Precision
from training.config.load import Loaded, differences, load, resolved
from training.config.names import SAME, canonical, options
from training.config.problems import ConfigError

GUIDE = """\
model: {name: "gpt2-medium", pretrained_path: "/models/gpt2"}
training: {batch_size: 32, epochs: 10, lr: 5e-5}     # note
data: {path: "${DATA_PATH}", shuffle: true}
"""
SCALE = """\
distributed: {backend: nccl, world_size: 8}
optimizer: {type: AdamW, lr: 1e-5}
engine: {type: Megatron, tensor_model_parallel: 4}
"""
SET = {"DATA_PATH": "/data"}


class Files:
    """Writes files and loads them, with arguments after `--config config.yaml`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def load(self, text: str, *arguments: str, environment: dict[str, str] | None = None) -> Loaded:
        path = self.write("config.yaml", text)
        line = parse_arguments(["--config", path, *arguments])
        return load(line, SET if environment is None else environment)

    def problems(self, text: str, *arguments: str) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(text, *arguments)
        return str(caught.value).replace(str(self.folder) + "/", "")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_the_guides_file_is_read_as_it_stands(files: Files) -> None:
    config = files.load(GUIDE).config
    assert (config.model.name, config.model.pretrained_path) == ("gpt2-medium", "/models/gpt2")
    assert (config.training.batch_size, config.training.epochs, config.training.lr) == (32, 10, 5e-5)
    assert (config.data.path, config.data.shuffle) == ("/data", True)


def test_the_command_line_wins_with_and_without_sections(files: Files) -> None:
    config = files.load(GUIDE, "--batch_size", "64", "--training.lr=1e-5", "--shuffle", "false").config
    assert (config.training.batch_size, config.training.lr, config.data.shuffle) == (64, 1e-5, False)
    assert files.load(GUIDE, "--learning-rate", "3e-4").config.training.lr == 3e-4


def test_the_second_file_wins_over_the_first_and_the_optimizers_rate_is_the_rate(files: Files) -> None:
    second = files.write("train_config.yaml", SCALE)
    loaded = files.load(GUIDE, "--train_config", second, "--local_rank=3")
    assert loaded.config.training.lr == 1e-5
    assert loaded.config.engine.type is EngineKind.MEGATRON
    assert loaded.config.distributed.world_size == 8
    assert [path.name for path in loaded.files] == ["config.yaml", "train_config.yaml"]
    assert files.load(GUIDE, "--train_config", second, "--lr", "2e-5").config.training.lr == 2e-5


def test_deepspeeds_file_sets_what_nobody_else_did(files: Files) -> None:
    ds = files.write(
        "ds_config.json",
        '{\n\t"fp16": {"enabled": true, "loss_scale": 0}, "train_micro_batch_size_per_gpu": 4,'
        ' "gradient_clipping": 0.5}',
    )
    loaded = files.load(GUIDE, "--deepspeed_config", ds)
    assert loaded.config.training.precision is Precision.FP16
    assert loaded.config.training.max_grad_norm == 0.5
    assert loaded.config.training.batch_size == 32
    assert loaded.config.engine.type is EngineKind.DEEPSPEED
    assert loaded.deepspeed is not None
    assert ds in {str(path) for path in loaded.files}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "data: {path: x}\ntraining:\n  batchsize: 3\n",
            "config.yaml:3: training.batchsize: is no known key; did you mean training.batch_size?",
        ),
        ("data: {path: x}\ntrainin: {lr: 1}\n", "did you mean training?"),
        (
            "data: {path: x, cache: memory}\nlr: 1\n",
            "config.yaml:2: lr: is no known key; did you mean training.lr",
        ),
        (
            "data: {path: x}\nengine: {type: VLLM}\n",
            "VLLM serves and does not train: it belongs into infer_config.yaml",
        ),
        ("data: {path: x}\nengine: {max_batch_size: 3}\n", "that is the serving engine's: infer_config.yaml"),
        ("data: {path: x}\nengine: {type: FDSP}\n", "did you mean fsdp?"),
        ("data: {path: x}\ntraining: {batch_size: many}\n", "should be a whole number, got 'many'"),
        ("data: {path: x}\ntraining: {lr: 0}\n", "should be above 0.0, got 0"),
        ("data: {path: '${NOT_SET}'}\n", "the environment has no NOT_SET: set it, or give a default"),
        ("training: {lr: 1e-5}\n", "data: is required and not given"),
        (
            "data: {path: x}\ntraining: {lr: 1e-5}\noptimizer: {lr: 1e-4}\n",
            "they are the same option, give one",
        ),
        ("data: {path: x}\ndata: {path: y}\n", "is not valid YAML"),
        ("data: [1\n", "is not valid YAML"),
        ("- 1\n", "should be a mapping of sections"),
        ("data: {path: x}\ntraining: {method: grpo}\n", "name at least one reward function in grpo.rewards"),
        ("data: {path: x}\ntraining: 3\n", "config.yaml:2: training: should be a mapping, got 3"),
    ],
)
def test_mistakes_are_told_with_place_and_remedy(files: Files, text: str, said: str) -> None:
    assert said in files.problems(text)


def test_all_mistakes_are_told_at_once(files: Files) -> None:
    told = files.problems("training: {lr: x, epochs: -1}\ndata: {pth: y}\n", "--max_steps", "0")
    assert len(told.splitlines()) == 5
    assert "--max_steps: training.max_steps" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batchsize", "3"], "did you mean training.batch_size?"),
        (["--lr"], "--lr: has no value"),
        (["lr", "3"], "options begin with --"),
        (["--lr", "1", "--training.lr", "2"], "training.lr is given twice"),
        (["--type", "x"], "did you mean optimizer.type or engine.type?"),
        (["--fp16", "true"], "here it is training.precision: fp16"),
    ],
)
def test_words_of_the_command_line_that_mean_nothing_are_told(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        parse_arguments(arguments)


def test_defaults_and_escapes_of_substitutions(files: Files) -> None:
    config = files.load(
        "data: {path: '${NOT_SET:/there}/$${x}'}\ntraining: {lr: '${LR}'}", environment={"LR": "1e-3"}
    )
    assert config.config.data.path == "/there/${x}"
    assert config.config.training.lr == 1e-3


def test_a_section_that_may_be_absent_is_made_by_a_flag_and_taken_out_by_null(files: Files) -> None:
    assert files.load("data: {path: x}", "--model.lora.rank", "4").config.model.lora is not None
    assert files.load("data: {path: x}\nmetrics: {port: 1}", "--port", "null").config.metrics.port is None
    assert files.load("data: {path: x}", "--grpo.rewards", "[a, b]").config.grpo.rewards == ("a", "b")


def test_every_option_has_a_line_in_the_help_and_every_other_name_leads_to_one() -> None:
    known = {option.key for option in options()}
    text = help_text()
    assert all(f"--{option.key}" in text and option.help for option in options())
    assert set(SAME.values()) <= known
    assert all(canonical(key) == key for key in known)


def test_what_was_resolved_can_be_compared_and_loaded_again(files: Files) -> None:
    first = resolved(files.load(GUIDE).config)
    second = resolved(files.load(GUIDE, "--lr", "1", "--log_every", "3").config)
    assert differences(first, second, ignored=("training.log_every",)) == ["training.lr: 5e-05 -> 1.0"]
    assert first["training"]["method"] == Method.SFT.value  # type: ignore[index]


def test_reading_a_configuration_needs_no_torch() -> None:
    modules = "training.config.load, training.sweep.grid, training.launch.arguments, training.data.sources"
    code = f"import sys, {modules}; assert not {{'torch', 'pyarrow', 'transformers'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
