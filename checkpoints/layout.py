"""From a folder's files to the sources that are published: as they are, or with an output head of their own.

The untied form exists because engines on CPU do not reload the head of tied models: the same
numbers with `lm_head.weight` written out and `tie_word_embeddings: false`. It is made while
copying, byte for byte, without a numeric library. Reads headers and JSON files only.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from checkpoints.architecture import is_tied
from checkpoints.contents import CONFIG, INDEX_SUFFIX, Contents, canonical_digest
from checkpoints.digest import Piece, Source, Span, file_source
from checkpoints.errors import CheckpointError
from checkpoints.tensors import Header, Tensor, build_header

HEAD = "lm_head.weight"
_EMBEDDINGS = (
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "model.language_model.embed_tokens.weight",
)


def sources_of(folder: Path, paths: Iterable[str], contents: Contents) -> list[Source]:
    """Each file as it is, its tensors marked; raises `OSError` for one that is gone."""
    return [
        file_source(folder / path, path, _spans(contents.headers[path]) if path in contents.headers else ())
        for path in paths
    ]


def can_untie(contents: Contents) -> bool:
    """The model is tied, has no head of its own, and its embedding is known by name."""
    names = {tensor.name for header in contents.headers.values() for tensor in header.tensors}
    return (
        contents.kind == "full"
        and is_tied(contents.config)
        and HEAD not in names
        and any(name in names for name in _EMBEDDINGS)
    )


def untied(folder: Path, contents: Contents) -> tuple[Contents, list[Source]]:
    """The same weights with a head of their own: one shard, the index and the configuration are rewritten.

    Returns the contents as they will be published, and where their bytes come from.

    Raises:
        CheckpointError: there is nothing to untie.
    """
    if not can_untie(contents):
        raise CheckpointError(f"{folder}: has no tied output head to write out")
    shard, embedding = _find_embedding(contents)
    old = contents.headers[shard]
    head, new = _with_head(old, embedding)
    config = {**contents.config, "tie_word_embeddings": False}
    pieces = (
        head,
        Piece(folder / shard, old.data_start, old.tensors[-1].end - old.data_start),
        Piece(folder / shard, embedding.start, embedding.end - embedding.start),
    )
    rewritten = {
        shard: Source(shard, pieces, _spans(new)),
        CONFIG: Source(CONFIG, (msgspec.json.format(msgspec.json.encode(config), indent=2),)),
    }
    for index in [path for path in contents.files if path.endswith(INDEX_SUFFIX)]:
        rewritten[index] = Source(index, (_index_with_head(folder / index, shard, embedding),))
    sources = [rewritten.get(source.path, source) for source in sources_of(folder, contents.files, contents)]
    weight_map = None if contents.weight_map is None else {**contents.weight_map, HEAD: shard}
    published = msgspec.structs.replace(
        contents,
        files={source.path: source.size() for source in sources},
        headers={**contents.headers, shard: new},
        config=config,
        weight_map=weight_map,
        digests=msgspec.structs.replace(contents.digests, config=canonical_digest(config)),
    )
    return published, sources


def _spans(header: Header) -> tuple[Span, ...]:
    return tuple(Span(tensor.name, tensor.start, tensor.end) for tensor in header.tensors)


def _find_embedding(contents: Contents) -> tuple[str, Tensor]:
    for file, header in contents.headers.items():
        for tensor in header.tensors:
            if tensor.name in _EMBEDDINGS:
                return file, tensor
    raise CheckpointError("has no embedding")


def _with_head(old: Header, embedding: Tensor) -> tuple[bytes, Header]:
    """The new file's first bytes, and the header they encode."""
    kept = [(tensor.name, tensor.dtype, tensor.shape, tensor.end - tensor.start) for tensor in old.tensors]
    length = embedding.end - embedding.start
    head = build_header([*kept, (HEAD, embedding.dtype, embedding.shape, length)], old.metadata)
    shift = len(head) - old.data_start
    tensors = [
        msgspec.structs.replace(tensor, start=tensor.start + shift, end=tensor.end + shift)
        for tensor in old.tensors
    ]
    end = tensors[-1].end
    tensors.append(Tensor(HEAD, embedding.dtype, embedding.shape, end, end + length))
    return head, Header(len(head), tuple(tensors), old.metadata)


def _index_with_head(file: Path, shard: str, embedding: Tensor) -> bytes:
    index = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
    weight_map = index.get("weight_map")
    places = {**weight_map, HEAD: shard} if isinstance(weight_map, dict) else {HEAD: shard}
    metadata = index.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("total_size"), int):
        metadata = {**metadata, "total_size": metadata["total_size"] + embedding.end - embedding.start}
    return msgspec.json.format(
        msgspec.json.encode({**index, "metadata": metadata, "weight_map": places}), indent=2
    )
