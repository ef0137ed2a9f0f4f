"""From facts to findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from gateway.doctor.finding import Finding, error, note, ok, warning

LEAST_FREE_GIB = 2.0
MAX_SKEW_S = 2.0
"""As the trainer's `distributed.max_clock_skew_s`."""
LEAST_FILES = 4096
_LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")
"""Not installed beside torch's CPU build on purpose (deploy/plans.py)."""
_OWN = "changeover"
"""Our side of the engine needs few of the gateway's packages, and is installed without them."""


class EngineFacts(msgspec.Struct, frozen=True):
    """What the engine's Python says of itself (`gather.QUESTION`)."""

    python: str
    versions: dict[str, str | None]
    cuda: str | None = None
    """The version that torch was built for; None: a CPU build."""
    gpus: int = 0
    """That torch sees."""
    broken: dict[str, str] = {}
    """Modules that are installed and cannot be imported."""


def packages(where: str, complaints: Iterable[str], mend: str) -> Finding:
    """What `pip check` says of an environment."""
    real = [line for line in complaints if line.strip() and not _expected(line)]
    topic = f"packages in {where}"
    if not real:
        return ok(topic, "no conflicts")
    return error(topic, "; ".join(real[:5]), mend)


def _expected(line: str) -> bool:
    missing = re.fullmatch(r"\S+ \S+ requires (\S+), which is not installed\.", line.strip())
    return line.startswith(f"{_OWN} ") or (missing is not None and missing[1] in _LEFT_OUT)


def pins(where: str, installed: dict[str, str | None], pinned: dict[str, str], mend: str) -> Finding:
    """Whether the packages that matter are those that were tested."""
    other = [
        f"{name} {installed[name]} (tested: {version})"
        for name, version in pinned.items()
        if installed.get(name) not in (None, version)
    ]
    topic = f"versions in {where}"
    return warning(topic, ", ".join(other), mend) if other else ok(topic, "as tested")


def engine(facts: EngineFacts | None, gpus_of_machine: int, hidden: str | None) -> list[Finding]:
    """torch's build and what it sees. `hidden`: CUDA_VISIBLE_DEVICES, if it is set."""
    if facts is None:
        return [
            error("engine", "there is no .venv-engine, or its Python does not start", "make setup-engine")
        ]
    found = [
        error("engine", f"{name} cannot be imported: {why}", _mend_import(name))
        for name, why in facts.broken.items()
    ]
    torch, vllm = facts.versions.get("torch"), facts.versions.get("vllm")
    if torch is None or vllm is None:
        what = "torch" if torch is None else "vllm"
        return [*found, error("engine", f"{what} is not installed in .venv-engine", "make setup-engine")]
    found.append(ok("engine", f"vllm {vllm}, torch {torch}, Python {facts.python}"))
    if facts.versions.get("trl") is None:
        found.append(note("trainer", "TRL is not installed", "make setup-training, to train here"))
    found.append(_gpus(facts, gpus_of_machine, hidden))
    return found


def _mend_import(name: str) -> str:
    if name in _LEFT_OUT:
        return f".venv-engine/bin/pip uninstall {name} (text needs none of it)"
    return "rm -rf .venv-engine && make setup-engine"


def _gpus(facts: EngineFacts, there: int, hidden: str | None) -> Finding:
    if facts.cuda is None:
        if there:
            return error("GPU", f"{there} GPU(s), but torch is a CPU build", "make setup-engine ENGINE=cuda")
        return ok("GPU", "none here, and torch is a CPU build")
    if facts.gpus:
        return ok("GPU", f"torch sees {facts.gpus}, built for CUDA {facts.cuda}")
    if hidden is not None and there:
        return error(
            "GPU", f"CUDA_VISIBLE_DEVICES={hidden!r} hides all {there}", "unset CUDA_VISIBLE_DEVICES"
        )
    if there:
        return error(
            "GPU",
            f"{there} GPU(s), but torch (CUDA {facts.cuda}) sees none",
            "look at nvidia-smi: a driver too old for this CUDA, or no access to /dev/nvidia* "
            "(containers: --gpus all)",
        )
    return error(
        "GPU", f"torch is built for CUDA {facts.cuda}, and there is no GPU", "make setup-engine ENGINE=cpu"
    )


def needs_gpus(wanted: int, facts: EngineFacts | None) -> list[Finding]:
    """Whether there are as many GPUs as the configuration's engines want."""
    if facts is None or facts.cuda is None or wanted <= facts.gpus:
        return []
    text = f"the engines want {wanted} (replicas times tensor_parallel_size), torch sees {facts.gpus}"
    return [error("GPU", text, "lower engine.replicas or engine.tensor_parallel_size")]


def port(name: str, number: int, taken: str | None) -> Finding:
    """`taken`: why it cannot be listened on."""
    if taken is None:
        return ok(f"port {number}", f"free for {name}")
    mend = f"is it running already? See `ss -ltnp 'sport = :{number}'`, or set {name} to another port"
    return error(f"port {number}", f"{name}: {taken}", mend)


def disk(where: str, free_gib: float, needed_gib: float) -> Finding:
    """Room for what will be written there."""
    text = f"{free_gib:.1f} GiB free"
    least = max(LEAST_FREE_GIB, needed_gib)
    if free_gib >= least:
        return ok(f"disk {where}", text)
    mend = "free some: `changeover checkpoints gc`, old models in ~/.cache/changeover, or set another folder"
    make = error if free_gib < needed_gib else warning
    return make(f"disk {where}", f"{text}, about {least:.1f} are needed", mend)


def clock(other: str, skew_s: float | None) -> list[Finding]:
    """Seconds by which another machine's clock is ahead; None: it does not tell."""
    if skew_s is None:
        return []
    if abs(skew_s) <= MAX_SKEW_S:
        return [ok("clock", f"within {abs(skew_s):.1f} s of {other}")]
    return [
        warning(
            "clock", f"{other} is {skew_s:+.1f} s away", "set both by NTP: `chronyc makestep`, `timedatectl`"
        )
    ]


def synchronised(state: bool | None) -> list[Finding]:
    """What the kernel says of NTP; None: it does not tell."""
    if state is None:
        return []
    if state:
        return [ok("clock", "kept by NTP")]
    return [note("clock", "the kernel knows of no NTP", "fine where the host keeps the clock (containers)")]


def open_files(limit: int, wanted: int) -> Finding:
    """The limit of open files against what the configuration may open."""
    if limit >= max(LEAST_FILES, wanted):
        return ok("open files", f"{limit} allowed")
    return warning(
        "open files", f"{limit} allowed, up to {wanted} may be wanted", "ulimit -n 65536 (LimitNOFILE)"
    )


def tokenizers(one: str, other: str, differences: Sequence[str]) -> Finding:
    """Two folders or versions whose texts must become the same ids."""
    if not differences:
        return ok("tokenizer", f"{one} and {other} agree")
    return error(
        "tokenizer",
        f"{one} and {other} differ: {', '.join(differences)}",
        "train with the tokenizer and template that the engines were started with (model.tokenizer_path), "
        "or publish with --restart-allowed and let the engines restart",
    )
