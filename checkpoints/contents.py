"""What a checkpoint folder holds: which files count, their tensors, and the facts engines read at launch.

Reads names, JSON files and safetensors headers, never the weights, so it is fast at any size.
Problems become findings instead of exceptions: a caller sees everything that is wrong at once.
Used by publishing (on the trainer's folder) and by verification (on a version's folder).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from checkpoints.errors import ManifestError, TensorFileError
from checkpoints.manifest import MANIFEST_FILE, OWN_FOLDER, Digests, TensorEntry, check_path
from checkpoints.tensors import Header, read_header
from checkpoints.verdict import Code, Finding

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
INDEX_SUFFIX = ".safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt")
SPECIAL_FILES = ("special_tokens_map.json", "added_tokens.json")
MAX_JSON_BYTES = 256 * 1024 * 1024
MAX_FILES = 10_000

_KEPT_SUFFIXES = (".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken", ".md")
_TRAINER_STATE = (
    "optimizer", "scheduler", "rng_state", "training_args", "trainer_state", "scaler", "random_states",
)  # fmt: skip
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_CODE_SUFFIXES = (".py", ".pyc", ".so")

Json = dict[str, object]


class Contents(msgspec.Struct, frozen=True):
    """Everything the static check looks at."""

    files: dict[str, int]
    """Path → bytes of each file that belongs to the checkpoint."""
    left_out: tuple[str, ...]
    """Trainer state and the like, which is not published."""
    headers: dict[str, Header]
    config: Json
    adapter: Json | None
    weight_map: dict[str, str] | None
    """Tensor → file, of the shards' index file."""
    digests: Digests
    vocabulary: int | None
    """The tokenizer's highest id plus one, where `tokenizer.json` tells."""
    findings: tuple[Finding, ...]

    @property
    def kind(self) -> Literal["full", "adapter"]:
        """What the weights are."""
        return "full" if self.adapter is None else "adapter"

    def tensors(self) -> tuple[TensorEntry, ...]:
        """All tensors, without digests."""
        return tuple(
            TensorEntry(tensor.name, tensor.dtype, tensor.shape, file)
            for file, header in self.headers.items()
            for tensor in header.tensors
        )


def read_contents(folder: Path) -> Contents:
    """Look at a folder; a folder that is not there or not readable raises `OSError`."""
    root = folder.resolve(strict=True)
    findings: list[Finding] = []
    files, left_out = _walk(root, findings)
    adapter = _json(root, ADAPTER_CONFIG, files, findings)
    config = _json(root, CONFIG, files, findings)
    if adapter is None and config is None and CONFIG not in files:
        findings.append(Finding(Code.FILE_MISSING, "a checkpoint needs its configuration", (CONFIG,)))
    if config is not None and "auto_map" in config:
        findings.append(
            Finding(Code.REMOTE_CODE, "auto_map asks for code of the checkpoint's own", (CONFIG,))
        )
    headers = _headers(root, files, findings)
    if not headers and not any(finding.code in (Code.FORMAT, Code.PICKLE) for finding in findings):
        findings.append(Finding(Code.FILE_MISSING, "there are no weights", ("*.safetensors",)))
    return Contents(
        files=files,
        left_out=tuple(left_out),
        headers=headers,
        config=config or {},
        adapter=adapter,
        weight_map=_weight_map(root, files, findings),
        digests=_digests(root, files, findings),
        vocabulary=_vocabulary(root, files, findings),
        findings=tuple(findings),
    )


def _walk(root: Path, findings: list[Finding]) -> tuple[dict[str, int], list[str]]:
    files: dict[str, int] = {}
    left_out: list[str] = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            reason = "leads out of the checkpoint's folder: copy the file itself there (cp -L)"
            findings.append(Finding(Code.LINK, reason, (name,)))
        elif not path.is_file() or name == MANIFEST_FILE or name.startswith(OWN_FOLDER + "/"):
            continue
        elif _belongs(path, name, findings):
            files[name] = path.stat().st_size
        else:
            left_out.append(name)
        if len(files) > MAX_FILES:
            findings.append(Finding(Code.FILE_EXTRA, f"more than {MAX_FILES} files"))
            break
    return files, left_out


def _belongs(path: Path, name: str, findings: list[Finding]) -> bool:
    stem, suffix = path.name.lower(), path.suffix.lower()
    if stem.startswith(_TRAINER_STATE) or any(
        part.startswith((".", "global_step")) for part in name.split("/")
    ):
        return False
    if suffix in _PICKLE_SUFFIXES:
        reason = "weights as a pickle can run code on load: save as safetensors"
        findings.append(Finding(Code.PICKLE, reason, (name,)))
        return False
    if suffix in _CODE_SUFFIXES:
        findings.append(Finding(Code.REMOTE_CODE, "code is not served from checkpoints", (name,)))
        return False
    if suffix not in _KEPT_SUFFIXES:
        return False
    try:
        check_path(name)
    except ManifestError as error:
        findings.append(Finding(Code.PATH, str(error), (name,)))
        return False
    return True


def _headers(root: Path, files: dict[str, int], findings: list[Finding]) -> dict[str, Header]:
    headers: dict[str, Header] = {}
    for name in files:
        if not name.endswith(".safetensors"):
            continue
        try:
            headers[name] = read_header(root / name, name)
        except TensorFileError as error:
            findings.append(Finding(_header_code(error.reason), error.reason, (name,)))
        except OSError as error:
            findings.append(Finding(Code.FILE_MISSING, f"cannot be read: {error.strerror}", (name,)))
    return headers


def _header_code(reason: str) -> Code:
    if "pickle" in reason:
        return Code.PICKLE
    return Code.FILE_TRUNCATED if reason.startswith("truncated") else Code.FORMAT


def _read(root: Path, name: str, files: dict[str, int]) -> bytes | None:
    if name not in files or files[name] > MAX_JSON_BYTES:
        return None
    return (root / name).read_bytes()


def _json(root: Path, name: str, files: dict[str, int], findings: list[Finding]) -> Json | None:
    raw = _read(root, name, files)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        findings.append(Finding(Code.CONFIG_INVALID, f"is not a JSON object: {error}", (name,)))
        return None


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _weight_map(root: Path, files: dict[str, int], findings: list[Finding]) -> dict[str, str] | None:
    names = [name for name in files if name.endswith(INDEX_SUFFIX)]
    if not names:
        return None
    merged: dict[str, str] = {}
    for name in names:
        try:
            merged.update(msgspec.json.decode(_read(root, name, files) or b"", type=_Index).weight_map)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            findings.append(Finding(Code.INDEX, f"is not an index of shards: {error}", (name,)))
    return merged


def _digests(root: Path, files: dict[str, int], findings: list[Finding]) -> Digests:
    tokenizer_config = _json(root, "tokenizer_config.json", files, findings) or {}
    template = _read(root, "chat_template.jinja", files)
    if template is None and isinstance(tokenizer_config.get("chat_template"), str | list):
        template = msgspec.json.encode(tokenizer_config["chat_template"])
    special = {key: tokenizer_config[key] for key in sorted(tokenizer_config) if key.endswith("_token")}
    return Digests(
        config=canonical_digest(_json(root, CONFIG, files, [])),
        tokenizer=_joint(root, files, TOKENIZER_FILES),
        special_tokens=_joint(root, files, SPECIAL_FILES, msgspec.json.encode(special) if special else b""),
        chat_template=None if template is None else hashlib.sha256(template).hexdigest(),
        generation_config=canonical_digest(_json(root, "generation_config.json", files, findings)),
    )


def canonical_digest(value: Json | None) -> str | None:
    """sha256 of a JSON object whatever the order of its keys, without what only says who wrote it."""
    if value is None:
        return None
    kept = {key: value[key] for key in value if key not in ("transformers_version", "_name_or_path")}
    return hashlib.sha256(msgspec.json.encode(kept, order="deterministic")).hexdigest()


def _joint(root: Path, files: dict[str, int], names: tuple[str, ...], more: bytes = b"") -> str | None:
    present = [name for name in names if name in files]
    if not present and not more:
        return None
    total = hashlib.sha256(more)
    for name in present:
        total.update(name.encode() + b"\0" + hashlib.sha256((root / name).read_bytes()).digest())
    return total.hexdigest()


class _Added(msgspec.Struct):
    id: int


class _Vocab(msgspec.Struct):
    vocab: dict[str, int] | list[msgspec.Raw] = msgspec.field(default_factory=dict)


class _Tokenizer(msgspec.Struct):
    model: _Vocab
    added_tokens: list[_Added] = msgspec.field(default_factory=list)


def _vocabulary(root: Path, files: dict[str, int], findings: list[Finding]) -> int | None:
    raw = _read(root, "tokenizer.json", files)
    if raw is None:
        return None
    try:
        tokenizer = msgspec.json.decode(raw, type=_Tokenizer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        findings.append(Finding(Code.TOKENIZER_INVALID, f"cannot be read: {error}", ("tokenizer.json",)))
        return None
    vocab = tokenizer.model.vocab
    ids = [entry.id for entry in tokenizer.added_tokens]
    ids += [len(vocab) - 1] if isinstance(vocab, list) else list(vocab.values())
    return max(ids, default=-1) + 1
