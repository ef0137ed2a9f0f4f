from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.errors import ManifestError
from checkpoints.manifest import Digests, FileEntry, Manifest, check_path, content_digest, decode, encode

FILES = (FileEntry("config.json", 3, "a" * 64), FileEntry("model.safetensors", 10, "b" * 64))
GOOD = Manifest(
    schema=1,
    model="toy",
    version=3,
    run="run",
    step=7,
    parent=2,
    kind="full",
    created="2026-11-30T00:00:00+00:00",
    digest=content_digest(FILES),
    data="versions/0000000003",
    files=FILES,
    digests=Digests(),
    tensor_count=1,
    metrics={"reward": 0.5},
)


def test_what_was_written_is_read() -> None:
    assert decode(encode(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2, this program reads 1"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"model": "../x"}, "model '../x' is not allowed"),
        ({"run": ""}, "run '' is not allowed"),
        ({"version": 0}, ">= 1"),
        ({"parent": 3}, "not before version 3"),
        ({"files": []}, "names no files"),
        ({"digest": "c" * 64}, "altered after publishing"),
        ({"data": "/etc"}, "is not allowed"),
        ({"kind": "half"}, "Invalid enum value"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_says_why(change: dict[str, object], message: str) -> None:
    value = msgspec.json.decode(encode(GOOD))
    value.update(change)
    with pytest.raises(ManifestError, match=message.replace("(", r"\(").replace("..", r"\.\.")):
        decode(msgspec.json.encode(value))


def test_a_missing_key_is_named() -> None:
    value = msgspec.json.decode(encode(GOOD))
    del value["run"]
    with pytest.raises(ManifestError, match="missing required field `run`"):
        decode(msgspec.json.encode(value))


@given(st.binary(max_size=300))
def test_noise_is_refused_and_nothing_else_happens(raw: bytes) -> None:
    with pytest.raises(ManifestError):
        decode(raw)


@given(st.integers(0, len(encode(GOOD)) - 3))
def test_half_a_manifest_is_never_read(length: int) -> None:
    with pytest.raises(ManifestError):
        decode(encode(GOOD)[:length])


@pytest.mark.parametrize(
    "path",
    ["../a", "a/../b", "/a", "a//b", "", ".", ".hidden", "a\\b", "a\0b", "a\nb", "a/", "~root", "a" * 600],
)
def test_a_path_that_could_leave_the_folder_is_refused(path: str) -> None:
    with pytest.raises(ManifestError):
        check_path(path)


def test_equal_contents_have_equal_digests_whatever_their_order_and_our_own_files() -> None:
    own = FileEntry("changeover/tensors.json", 5, "c" * 64)
    assert content_digest(FILES) == content_digest((own, *reversed(FILES)))
    assert content_digest(FILES) != content_digest(FILES[:1])
