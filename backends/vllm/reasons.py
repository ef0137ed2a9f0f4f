"""What the engine's log lines mean for people: what it is at while it starts, and why it ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_QUOTED_LINES = 6
"""Of the engine's own words in a message; the rest is in its log."""
OUT_OF_MEMORY_EXIT = 137
"""128 + SIGKILL: on Linux nearly always the kernel's out-of-memory killer, or `docker stop` in a hurry."""

_PREFIX = re.compile(r"^\([^)]*\)\s*(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]+\]\s?)?")
_PHASES = (
    (re.compile(r"Resolved architecture"), "starting its processes"),
    (re.compile(r"Initializing a V1 LLM engine"), "preparing the model"),
    (re.compile(r"Starting to load model|Loading (safetensors|weights)"), "loading weights"),
    (re.compile(r"Loading weights took|Model loading took"), "weights are loaded"),
    (re.compile(r"Compiling a graph|Dynamo bytecode transform"), "compiling"),
    (re.compile(r"Capturing CUDA graphs|Warming up"), "warming up"),
    (re.compile(r"KV cache size"), "setting up the KV cache"),
    (re.compile(r"Application startup complete"), "answering"),
)


@dataclass(frozen=True, slots=True)
class Cause:
    """One way in which engines end."""

    sign: re.Pattern[str]
    meaning: str
    permanent: bool
    """Whether another start with the same settings would end the same."""


_CAUSES = (
    Cause(
        re.compile(r"(?i:OutOfMemory|out of memory|cannot allocate memory|bad_alloc|not enough memory)"),
        "out of memory: use a smaller model, a smaller engine.kv_cache_gib or fewer engine.replicas",
        permanent=False,
    ),
    Cause(
        re.compile(
            r"max_model_len.*larger|No available memory for the cache blocks|KV cache is needed",
            re.IGNORECASE,
        ),
        "the KV cache is too small for one request: raise engine.kv_cache_gib or lower engine.max_model_len",
        permanent=True,
    ),
    Cause(
        re.compile(r"address already in use", re.IGNORECASE),
        "its address is in use: another engine of this configuration runs",
        permanent=False,
    ),
    Cause(
        re.compile(r"Repo(sitory)?NotFound|is not a (valid|local) (model|folder)|LocalEntryNotFound"),
        "the model was not found: check engine.model",
        permanent=True,
    ),
    Cause(
        re.compile(r"unrecognized arguments|error: argument"),
        "vLLM does not know one of its arguments: check engine.extra_args",
        permanent=True,
    ),
    Cause(
        re.compile(r"must be divisible by tensor parallel|divisible by tp_size"),
        "engine.tensor_parallel_size does not divide the model",
        permanent=True,
    ),
    Cause(
        re.compile(r"No module named 'backends"),
        "the guard is not installed beside vLLM: run `make setup-engine`",
        permanent=True,
    ),
)


@dataclass(frozen=True, slots=True)
class EngineExit:
    """How an engine ended."""

    code: int
    """As a shell reports it: 128 + N for signal N."""
    reason: str
    permanent: bool


def phase(line: str) -> str | None:
    """What the engine has come to when it prints this, or None."""
    return next((text for sign, text in _PHASES if sign.search(line)), None)


def explain_exit(code: int, lines: Sequence[str]) -> EngineExit:
    """Why an engine ended, from its exit code and its last lines: our words first, then its own."""
    for cause in _CAUSES:
        if any(cause.sign.search(line) for line in lines):
            return EngineExit(code, f"{cause.meaning}{_quote(lines)}", cause.permanent)
    if code == OUT_OF_MEMORY_EXIT:
        return EngineExit(code, "it was killed (SIGKILL): out of memory, or someone did it", permanent=False)
    if code > 128:
        return EngineExit(code, f"it was ended by signal {code - 128}", permanent=False)
    return EngineExit(code, f"it ended with exit code {code}{_quote(lines)}", permanent=False)


def _quote(lines: Sequence[str]) -> str:
    """The last lines that name an error, each once, without vLLM's prefixes."""
    plain = [_PREFIX.sub("", line).strip() for line in lines]
    named = [line for line in plain if re.match(r"(\w+\.)*\w*(Error|Exception)\b.*:|.*error:", line)]
    last = list(dict.fromkeys(named))[-MAX_QUOTED_LINES:]
    return "".join(f"\n    | {line[:300]}" for line in last)
