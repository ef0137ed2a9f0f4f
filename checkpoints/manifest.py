"""The manifest: what a published version is, in one small file that is written last.

A version exists exactly when its manifest can be read. Everything else (weights, tensor index,
probe) is named here with its size and sha256, so a reader needs to trust only these bytes.
Reading is strict: another schema, an unknown key, a path that could leave the folder or a number
out of range is a `ManifestError`. Pure: no I/O. Used by the store, the publisher, the engines'
agents and the gateway.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from checkpoints.errors import ManifestError

SCHEMA = 1
MAX_MANIFEST_BYTES = 8 * 1024 * 1024
MANIFEST_FILE = "manifest.json"
OWN_FOLDER = "changeover"
TENSORS_FILE = f"{OWN_FOLDER}/tensors.json"
PROBE_FILE = f"{OWN_FOLDER}/probe.json"

_MAX_PATH = 512
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]*(/[A-Za-z0-9_][A-Za-z0-9_.+=@-]*)*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
WeightsKind = Literal["full", "adapter", "merged"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One object of the manifest: frozen, unknown keys are errors."""


class FileEntry(_Record, frozen=True):
    """One file of the version; `path` is relative to the version's data."""

    path: str
    size: Count
    sha256: Sha256


class TensorEntry(_Record, frozen=True):
    """One tensor. `digest` is a fingerprint that tells what changed; the file's sha256 proves integrity."""

    name: str
    dtype: str
    shape: tuple[Count, ...]
    file: str
    digest: str = ""


class Digests(_Record, frozen=True):
    """sha256 of what an engine reads only at launch; None: the checkpoint has none."""

    config: Sha256 | None = None
    tokenizer: Sha256 | None = None
    special_tokens: Sha256 | None = None
    chat_template: Sha256 | None = None
    generation_config: Sha256 | None = None


class Golden(_Record, frozen=True):
    """A text and its ids by the trainer's tokenizer; `chat`: the text is a user's message in the template."""

    text: str
    ids: tuple[Count, ...]
    chat: bool = False


class Form(_Record, frozen=True):
    """How the published bytes differ from the trainer's; `untied` has an output head of its own."""

    kind: Literal["as_is", "untied"] = "as_is"
    rewritten: tuple[str, ...] = ()


class Signature(_Record, frozen=True):
    """Ed25519 (RFC 8032) over the manifest's bytes without this field; base64."""

    key: str
    value: str


class Manifest(_Record, frozen=True):
    """One version. `digest` names the contents: equal contents have equal digests, whoever published them."""

    schema: int
    model: str
    version: Annotated[int, msgspec.Meta(ge=1)]
    run: str
    step: Count
    parent: int | None
    kind: WeightsKind
    created: str
    digest: Sha256
    data: str
    files: tuple[FileEntry, ...]
    digests: Digests
    tensor_count: Count
    architecture: str | None = None
    dtype: str | None = None
    base: int | None = None
    form: Form = Form()
    golden: tuple[Golden, ...] = ()
    metrics: dict[str, float | int | str | bool] = msgspec.field(default_factory=dict)
    signature: Signature | None = None

    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def file(self, path: str) -> FileEntry | None:
        """The entry of that path."""
        return next((entry for entry in self.files if entry.path == path), None)

    def has_probe(self) -> bool:
        """A probe was published with it."""
        return self.file(PROBE_FILE) is not None


def check_path(path: str) -> str:
    """Return a relative POSIX path that stays inside its folder.

    Raises:
        ManifestError: absolute, with `..`, an empty or hidden part, a backslash or control characters.
    """
    if len(path) > _MAX_PATH or not _PATH.fullmatch(path):
        raise ManifestError(
            f"path {path[:80]!r} is not allowed: relative, without '..', hidden parts or special characters"
        )
    return path


def check_name(what: str, name: str) -> str:
    """Return a model or run name that is safe as a folder name; raises `ManifestError`."""
    if not _NAME.fullmatch(name):
        raise ManifestError(
            f"{what} {name[:80]!r} is not allowed: letters, digits, '_', '-', '.', at most 128"
        )
    return name


def content_digest(files: Iterable[FileEntry]) -> str:
    """sha256 over the sorted `path NUL size NUL sha256` lines of the trainer's files (not of our own)."""
    lines = sorted(
        f"{entry.path}\0{entry.size}\0{entry.sha256}\n"
        for entry in files
        if not entry.path.startswith(OWN_FOLDER + "/")
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def encode(manifest: Manifest) -> bytes:
    """The manifest's bytes: canonical, because fields keep their order and keys of mappings are sorted."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n"


def signed_bytes(manifest: Manifest) -> bytes:
    """What a signature covers."""
    return encode(msgspec.structs.replace(manifest, signature=None))


def decode(raw: bytes, where: str = MANIFEST_FILE) -> Manifest:
    """Read a manifest strictly; `where` names it in errors.

    Raises:
        ManifestError: not JSON, another schema, unknown keys, a bad value, an unsafe path, a wrong digest.
    """
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ManifestError(f"{where}: {len(raw)} bytes, more than {MAX_MANIFEST_BYTES}")
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _check_schema(raw, where)
        raise ManifestError(f"{where}: {error}") from error
    _check_contents(manifest, where)
    return manifest


class _Schema(msgspec.Struct):
    schema: int


def _check_schema(raw: bytes, where: str) -> None:
    try:
        found = msgspec.json.decode(raw, type=_Schema).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{where}: {error}") from error
    _check_number(found, where)


def _check_number(found: int, where: str) -> None:
    if found != SCHEMA:
        raise ManifestError(
            f"{where}: schema {found}, this program reads {SCHEMA}: use the changeover that wrote it"
        )


def _check_contents(manifest: Manifest, where: str) -> None:
    _check_number(manifest.schema, where)
    check_name("model", manifest.model)
    check_name("run", manifest.run)
    check_path(manifest.data)
    if not manifest.files:
        raise ManifestError(f"{where}: names no files")
    seen: set[str] = set()
    for entry in manifest.files:
        if check_path(entry.path) in seen:
            raise ManifestError(f"{where}: names {entry.path} twice")
        seen.add(entry.path)
    if MANIFEST_FILE in seen:
        raise ManifestError(f"{where}: names {MANIFEST_FILE} among its files")
    if manifest.parent is not None and not 1 <= manifest.parent < manifest.version:
        raise ManifestError(f"{where}: parent {manifest.parent} is not before version {manifest.version}")
    if manifest.digest != content_digest(manifest.files):
        raise ManifestError(f"{where}: its digest is not that of its files: it was altered after publishing")


class TensorIndex(_Record, frozen=True):
    """The version's tensors, in its own file because it can be long."""

    schema: int
    tensors: tuple[TensorEntry, ...]


def encode_index(tensors: Iterable[TensorEntry]) -> bytes:
    """The bytes of `TENSORS_FILE`, sorted by name."""
    return msgspec.json.encode(TensorIndex(SCHEMA, tuple(sorted(tensors, key=lambda entry: entry.name))))


def decode_index(raw: bytes, where: str = TENSORS_FILE) -> tuple[TensorEntry, ...]:
    """Read a tensor index; raises `ManifestError`."""
    try:
        index = msgspec.json.decode(raw, type=TensorIndex)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{where}: {error}") from error
    if index.schema != SCHEMA:
        raise ManifestError(f"{where}: schema {index.schema}, this program reads {SCHEMA}")
    return index.tensors
