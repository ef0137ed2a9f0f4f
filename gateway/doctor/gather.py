"""Facts about this machine and the two environments. Blocking."""

from __future__ import annotations

import ctypes
import errno
import re
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from gateway.doctor.rules import EngineFacts

_ANSWER_S = 180.0
_MATTER = ("vllm", "torch", "transformers", "trl", "accelerate", "peft", "datasets", "msgspec", "httpx2")
QUESTION = """
import importlib, importlib.metadata as m, importlib.util, json, platform, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
facts = {"python": platform.python_version(), "versions": {n: version(n) for n in sys.argv[1:]}, "broken": {}}
for name in ("torch", "torchvision", "torchaudio", "transformers"):
    if importlib.util.find_spec(name) is not None:
        try: importlib.import_module(name)
        except Exception as e: facts["broken"][name] = (str(e).splitlines() or [type(e).__name__])[0][:200]
torch = sys.modules.get("torch")
if torch is not None and "torch" not in facts["broken"]:
    facts["cuda"] = torch.version.cuda
    facts["gpus"] = torch.cuda.device_count() if torch.version.cuda else 0
print(json.dumps(facts))
"""
_TIME_ERROR = 5
"""adjtimex(2): the clock is not synchronised."""


def ask_engine(python: Path) -> EngineFacts | None:
    """What the engine's Python says; None: it says nothing that can be read."""
    try:
        done = subprocess.run(
            [python, "-c", QUESTION, *_MATTER], capture_output=True, timeout=_ANSWER_S, check=False
        )
        last = done.stdout.strip().splitlines()[-1:]
        return msgspec.json.decode(last[0], type=EngineFacts) if last else None
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return None


def pip_check(python: Path) -> list[str]:
    """The lines in which pip names conflicts; none if all is well."""
    command: list[str | Path] = [python, "-m", "pip", "check", "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"pip does not answer: {error}"]
    return done.stdout.splitlines() if done.returncode else []


def pinned(path: Path, names: tuple[str, ...] = _MATTER) -> dict[str, str]:
    """Versions of a constraints file, of the packages that matter."""
    found: dict[str, str] = {}
    if not path.is_file():
        return found
    for line in path.read_text().splitlines():
        match = re.match(r"([A-Za-z0-9_.-]+)==([^\s;]+)", line)
        if match and match[1].lower() in names:
            found[match[1].lower()] = match[2]
    return found


def gpus() -> int:
    """NVIDIA GPUs that the kernel shows."""
    return len([path for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)])


def port_taken(host: str, port: int) -> str | None:
    """Why nobody can listen there; None: one can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
    return None


def free_gib(folder: Path) -> float:
    """On the filesystem of the folder, or of the nearest one above it that exists."""
    place = folder.expanduser().absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free / 2**30


def size_gib(folder: Path) -> float:
    """Of the weights in a model's folder."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 2**30


def file_limit() -> int:
    """Open files that a process may be allowed."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def ntp_synchronised() -> bool | None:
    """As the kernel says (adjtimex, reading only); None: not to be found out."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(512)
        state = int(library.adjtimex(buffer))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
