"""The corpus of broken checkpoints: each kind is a good one with one thing wrong, made by code.

`TRAINER_KINDS` break a trainer's folder before it is published, `STORED_KINDS` a version's folder
afterwards. Each names the findings that must refuse it.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from checkpoints.verdict import Code
from tests.checkpoints.models import CONFIG, TOKENIZER, Weights, safetensors, weights, write_json, write_model

NAN_BF16 = b"\xc0\x7f"
INF_BF16 = b"\x80\x7f"
Q, K = "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"
DOWN, NORM = "model.layers.0.mlp.down_proj.weight", "model.norm.weight"
SHARD = "model-00002-of-00003.safetensors"


class Kind(msgspec.Struct, frozen=True):
    """One way to be broken; `seen` are the codes of which at least one must refuse it."""

    name: str
    make: Callable[[Path], None]
    seen: frozenset[Code]


def trainer_kind(name: str, *seen: Code) -> Callable[[Callable[[Weights], Weights | None]], Kind]:
    """A kind that alters the weights of an unsharded checkpoint."""

    def wrap(alter: Callable[[Weights], Weights | None]) -> Kind:
        def make(folder: Path) -> None:
            tensors = weights(seed=2)
            write_model(folder, alter(tensors) or tensors)

        return Kind(name, make, frozenset(seen))

    return wrap


def _without(*names: str) -> Callable[[Weights], Weights]:
    return lambda tensors: {name: value for name, value in tensors.items() if name not in names}


def _with(name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Callable[[Weights], Weights]:
    return lambda tensors: {**tensors, name: (dtype, shape, data)}


def _patched(name: str, offset: int, data: bytes) -> Callable[[Weights], Weights]:
    def alter(tensors: Weights) -> Weights:
        dtype, shape, old = tensors[name]
        return {**tensors, name: (dtype, shape, old[:offset] + data + old[offset + len(data) :])}

    return alter


def folder_kind(name: str, *seen: Code) -> Callable[[Callable[[Path], object]], Kind]:
    """A kind that spoils the files of a checkpoint of three shards."""

    def wrap(spoil: Callable[[Path], object]) -> Kind:
        def make(folder: Path) -> None:
            write_model(folder, seed=2, shards=3)
            spoil(folder)

        return Kind(name, make, frozenset(seen))

    return wrap


def _cut(folder: Path) -> None:
    path = folder / SHARD
    path.write_bytes(path.read_bytes()[:-7])


def _cut_header(folder: Path) -> None:
    path = folder / SHARD
    path.write_bytes(path.read_bytes()[:40])


def _append(folder: Path) -> None:
    path = folder / SHARD
    path.write_bytes(path.read_bytes() + b"more")


def _pickle_inside(folder: Path) -> None:
    with zipfile.ZipFile(folder / SHARD, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")


def _pickle_only(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")


def _overlap(folder: Path) -> None:
    path = folder / SHARD
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    table = msgspec.json.decode(raw[8 : 8 + length])
    names = [name for name in table if name != "__metadata__"]
    size = table[names[0]]["data_offsets"]
    table[names[1]] = {**table[names[0]], "data_offsets": size}
    body = msgspec.json.encode(table)
    body += b" " * (length - len(body))
    path.write_bytes(raw[:8] + body[:length] + raw[8 + length :])


def _huge_header(folder: Path) -> None:
    path = folder / SHARD
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


def _link_outside(folder: Path) -> None:
    secret = folder.parent / "elsewhere.safetensors"
    secret.write_bytes((folder / SHARD).read_bytes())
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(secret)


def _index_misplaces(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = msgspec.json.decode(path.read_bytes())
    name = next(name for name, file in index["weight_map"].items() if file == SHARD)
    index["weight_map"][name] = "model-00001-of-00003.safetensors"
    write_json(path, index)


def _index_escapes(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = msgspec.json.decode(path.read_bytes())
    name = next(name for name, file in index["weight_map"].items() if file == SHARD)
    index["weight_map"][name] = "../../other/model.safetensors"
    write_json(path, index)


def _config(**changes: object) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "config.json", {**CONFIG, **changes})


def _other_tokenizer(folder: Path) -> None:
    vocab = dict(TOKENIZER["model"]["vocab"])  # type: ignore[index,call-overload]
    vocab["t1"], vocab["t2"] = vocab["t2"], vocab["t1"]
    write_json(folder / "tokenizer.json", {**TOKENIZER, "model": {"type": "BPE", "vocab": vocab}})


def _large_tokenizer(folder: Path) -> None:
    write_json(folder / "tokenizer.json", {**TOKENIZER, "added_tokens": [{"id": 64, "content": "<new>"}]})


def _f32(tensors: Weights) -> Weights:
    name = DOWN
    shape = tensors[name][1]
    return {**tensors, name: ("F32", shape, struct.pack("<f", 0.5) * (shape[0] * shape[1]))}


def _twice(folder: Path) -> None:
    write_model(folder, seed=2)
    (folder / "model2.safetensors").write_bytes(safetensors({Q: weights(seed=3)[Q]}))


TRAINER_KINDS: list[Kind] = [
    trainer_kind("a tensor missing", Code.TENSOR_MISSING)(_without(DOWN)),
    trainer_kind("a layer missing", Code.TENSOR_MISSING, Code.FUSED_PART_MISSING)(
        lambda tensors: {name: value for name, value in tensors.items() if ".layers.1." not in name}
    ),
    trainer_kind("one part of fused attention missing", Code.FUSED_PART_MISSING)(_without(K)),
    trainer_kind("one part of the fused gate missing", Code.FUSED_PART_MISSING)(
        _without("model.layers.0.mlp.up_proj.weight")
    ),
    trainer_kind("the output head missing", Code.TENSOR_MISSING)(_without("lm_head.weight")),
    trainer_kind("an unknown name", Code.TENSOR_UNKNOWN)(
        _with("model.layers.0.extra.weight", "BF16", (2,), b"\x01\x3f" * 2)
    ),
    trainer_kind("a wrapper's prefix on every name", Code.TENSOR_UNKNOWN, Code.TENSOR_MISSING)(
        lambda tensors: {f"module.{name}": value for name, value in tensors.items()}
    ),
    trainer_kind("a wrong shape", Code.SHAPE)(_with(NORM, "BF16", (8,), b"\x01\x3f" * 8)),
    trainer_kind("a transposed matrix", Code.SHAPE)(
        lambda tensors: {**tensors, DOWN: ("BF16", tensors[DOWN][1][::-1], tensors[DOWN][2])}
    ),
    trainer_kind("one matrix of another dtype", Code.DTYPE)(_f32),
    trainer_kind("integer weights", Code.DTYPE)(_with(NORM, "I16", (16,), b"\x01\x00" * 16)),
    trainer_kind("one NaN", Code.NOT_FINITE)(_patched(DOWN, 500, NAN_BF16)),
    trainer_kind("one infinity", Code.NOT_FINITE)(_patched(Q, 0, INF_BF16)),
    trainer_kind("a matrix of zeros", Code.ZEROS)(_patched(DOWN, 0, bytes(16 * 32 * 2))),
    trainer_kind("a norm of zeros", Code.ZEROS)(_patched(NORM, 0, bytes(32))),
    folder_kind("a shard missing", Code.FILE_MISSING)(lambda folder: (folder / SHARD).unlink()),
    folder_kind("a shard truncated", Code.FILE_TRUNCATED)(_cut),
    folder_kind("a shard cut inside its header", Code.FILE_TRUNCATED)(_cut_header),
    folder_kind("an empty shard", Code.FILE_TRUNCATED)(lambda folder: (folder / SHARD).write_bytes(b"")),
    folder_kind("bytes after the last tensor", Code.FORMAT)(_append),
    folder_kind("overlapping tensors", Code.FORMAT)(_overlap),
    folder_kind("a header length beyond all bounds", Code.FORMAT)(_huge_header),
    folder_kind("a pickle named safetensors", Code.PICKLE)(_pickle_inside),
    folder_kind("a pickle instead of safetensors", Code.PICKLE)(_pickle_only),
    folder_kind("a symlink out of the folder", Code.LINK)(_link_outside),
    folder_kind("an index that misplaces a tensor", Code.INDEX)(_index_misplaces),
    folder_kind("an index that leads out of the folder", Code.FILE_MISSING, Code.PATH)(_index_escapes),
    folder_kind("code of its own", Code.REMOTE_CODE)(
        lambda folder: (folder / "modeling_toy.py").write_text("print('run me')")
    ),
    folder_kind("a configuration that asks for code", Code.REMOTE_CODE)(
        _config(auto_map={"AutoModelForCausalLM": "modeling_toy.Toy"})
    ),
    folder_kind("no configuration", Code.FILE_MISSING)(lambda folder: (folder / "config.json").unlink()),
    folder_kind("a configuration that is not JSON", Code.CONFIG_INVALID)(
        lambda folder: (folder / "config.json").write_text("{")
    ),
    folder_kind("another configuration", Code.CONFIG)(_config(rope_theta=500000.0)),
    folder_kind("a configuration with more layers", Code.CONFIG, Code.TENSOR_MISSING)(
        _config(num_hidden_layers=3)
    ),
    folder_kind("another tokenizer", Code.TOKENIZER)(_other_tokenizer),
    folder_kind("a tokenizer larger than the embedding", Code.TOKENIZER_INVALID)(_large_tokenizer),
    folder_kind("another chat template", Code.CHAT_TEMPLATE)(
        lambda folder: (folder / "chat_template.jinja").write_text("{{ other }}")
    ),
    folder_kind("another generation configuration", Code.GENERATION_CONFIG)(
        lambda folder: write_json(folder / "generation_config.json", {"temperature": 0.1})
    ),
    folder_kind("another beginning-of-text token", Code.SPECIAL_TOKENS)(
        lambda folder: write_json(
            folder / "tokenizer_config.json", {"bos_token": "t1", "chat_template": "{{ messages }}"}
        )
    ),
    Kind("a tensor in two shards", _twice, frozenset({Code.TENSOR_TWICE})),
]


def _weights_file(folder: Path) -> Path:
    return folder / "model.safetensors"


def _flip(folder: Path) -> None:
    path = _weights_file(folder)
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw)


def _shorten(folder: Path) -> None:
    path = _weights_file(folder)
    path.write_bytes(path.read_bytes()[:-1])


def _exchange_config(folder: Path) -> None:
    write_json(folder / "config.json", {**CONFIG, "rope_theta": 1.0})


def _manifest(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "manifest.json"
        manifest = msgspec.json.decode(path.read_bytes())
        change(manifest)
        write_json(path, manifest)

    return spoil


def _escape(manifest: dict[str, object]) -> None:
    manifest["files"][0]["path"] = "../../etc/passwd"  # type: ignore[index]


STORED_KINDS: list[Kind] = [
    Kind("a flipped byte", _flip, frozenset({Code.DIGEST})),
    Kind("a file cut after publishing", _shorten, frozenset({Code.FILE_TRUNCATED})),
    Kind("a file gone after publishing", lambda f: _weights_file(f).unlink(), frozenset({Code.FILE_MISSING})),
    Kind("a configuration exchanged after publishing", _exchange_config, frozenset({Code.DIGEST})),
    Kind(
        "a file slipped in after publishing",
        lambda folder: write_json(folder / "added_tokens.json", {"<evil>": 63}),
        frozenset({Code.FILE_EXTRA}),
    ),
    Kind("a manifest with '..' in a path", _manifest(_escape), frozenset({Code.MANIFEST})),
    Kind(
        "a manifest of another schema",
        _manifest(lambda manifest: manifest.update(schema=99)),
        frozenset({Code.MANIFEST}),
    ),
    Kind(
        "a manifest whose digest is another's",
        _manifest(lambda manifest: manifest.update(digest="0" * 64)),
        frozenset({Code.MANIFEST}),
    ),
    Kind(
        "half a manifest",
        lambda folder: (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes()[:200]),
        frozenset({Code.MANIFEST}),
    ),
]
