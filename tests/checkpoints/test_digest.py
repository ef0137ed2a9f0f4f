from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from checkpoints.digest import CHUNK_BYTES, Piece, Progress, Source, Span, file_source, hash_files
from checkpoints.errors import SourceChangedError


def _noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def test_one_pass_gives_the_sha256_of_whole_files_pieces_and_bytes(tmp_path: Path) -> None:
    data = _noise(2 * CHUNK_BYTES + 12345)
    (tmp_path / "a").write_bytes(data)
    mixed = Source("mixed", (b"head", Piece(tmp_path / "a", 100, CHUNK_BYTES + 1), b"tail"))
    whole, pieces = hash_files([file_source(tmp_path / "a", "a"), mixed])
    assert whole.entry.sha256 == hashlib.sha256(data).hexdigest()
    wanted = b"head" + data[100 : CHUNK_BYTES + 101] + b"tail"
    assert (pieces.entry.size, pieces.entry.sha256) == (len(wanted), hashlib.sha256(wanted).hexdigest())
    assert mixed.size() == len(wanted)


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    sources = []
    for name in "abc":
        (tmp_path / name).write_bytes(_noise(CHUNK_BYTES + 7))
        sources.append(file_source(tmp_path / name, name))
    told: list[tuple[int, int]] = []
    total = sum(source.size() for source in sources)
    hash_files(sources, Progress(total, lambda done, of: told.append((done, of))))
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_changed_element_changes_only_its_tensors_fingerprint(tmp_path: Path) -> None:
    data = bytearray(_noise(3 * CHUNK_BYTES))
    spans = (
        Span("small", 10, 1000),
        Span("large", 1000, 2 * CHUNK_BYTES),
        Span("last", 2 * CHUNK_BYTES, len(data)),
    )

    def prints() -> dict[str, str]:
        (tmp_path / "a").write_bytes(data)
        return hash_files([file_source(tmp_path / "a", "a", spans)])[0].tensors

    before = prints()
    assert set(before) == {"small", "large", "last"}
    data[500] ^= 1
    after = prints()
    assert {name for name in before if before[name] != after[name]} == {"small"}
    data[len(data) - 1] ^= 1
    assert prints()["last"] != after["last"]


def test_a_fingerprint_does_not_depend_on_where_in_the_file_the_tensor_is(tmp_path: Path) -> None:
    tensor = _noise(CHUNK_BYTES + 3, 5)
    found = []
    for shift in (0, 1, CHUNK_BYTES - 1):
        path = tmp_path / str(shift)
        path.write_bytes(bytes(shift) + tensor)
        span = Span("t", shift, shift + len(tensor))
        found.append(hash_files([file_source(path, "a", (span,))])[0].tensors["t"])
    assert len(set(found)) == 1


def test_a_file_that_shrinks_or_goes_away_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    source = file_source(path, "a")
    path.write_bytes(b"x" * 50)
    with pytest.raises(SourceChangedError, match="shorter"):
        hash_files([source])
    path.unlink()
    with pytest.raises(SourceChangedError, match="went away"):
        hash_files([source])
