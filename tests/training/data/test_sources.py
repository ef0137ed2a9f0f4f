"""Data in folders, buckets and HDFS, and the built-in corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.checkpoints.test_remote_stores import BUCKET, s3_url
from tests.checkpoints.webhdfs_fake import running_webhdfs
from training.data.corpus import NAME
from training.data.errors import DataError
from training.data.sources import local_files

__all__ = ["s3_url"]

REMOTE = {"a.jsonl": b'{"text": "a"}', "notes.pdf": b"no data", "b.txt": b"b"}


def found(location: str, downloads: Path) -> list[str]:
    return [path.name for path in local_files(location, downloads, lambda line: None)]


def test_a_folder_gives_its_known_files_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "deep/a.txt", ".hidden.txt", "_SUCCESS/x.txt", "notes.pdf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert found(str(tmp_path), tmp_path) == ["b.jsonl", "a.txt"]
    assert found(f"file://{tmp_path}/b.jsonl", tmp_path) == ["b.jsonl"]


@pytest.mark.parametrize("missing", ["nowhere", "empty", "builtin:novels", "ftp://host/data"])
def test_where_nothing_is_to_be_had_is_told(tmp_path: Path, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    location = missing if ":" in missing else str(tmp_path / missing)
    with pytest.raises(DataError, match=r"data\.path"):
        found(location, tmp_path)


def test_the_built_in_corpus_is_long_enough_to_learn_from(tmp_path: Path) -> None:
    (path,) = local_files(NAME, tmp_path, lambda line: None)
    assert path.read_text().count("\n") > 300
    assert local_files(NAME, tmp_path, lambda line: None) == [path]


@pytest.fixture
def hdfs() -> Iterator[str]:
    with running_webhdfs() as server:
        server.space.files |= {f"/data/{name}": content for name, content in REMOTE.items()}
        server.space.make_folders("/data")
        yield f"webhdfs://{server.address}/data"


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    environment = {
        "AWS_ENDPOINT": s3_url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name, content in REMOTE.items():
        httpx2.put(f"{s3_url}/{BUCKET}/data/{name}", content=content, trust_env=False).raise_for_status()
    return f"s3://{BUCKET}/data"


@pytest.mark.parametrize("kind", ["hdfs", "bucket"])
def test_what_is_far_away_is_fetched_once(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    location: str = request.getfixturevalue(kind)
    said: list[str] = []
    for _ in range(2):
        paths = local_files(location, tmp_path / "new", said.append)
        assert [(path.name, path.read_bytes()) for path in paths] == [
            ("a.jsonl", REMOTE["a.jsonl"]),
            ("b.txt", REMOTE["b.txt"]),
        ]
    assert len(said) == 2
    assert found(f"{location}/b.txt", tmp_path / "one") == ["b.txt"]
    with pytest.raises(DataError, match="not in the store"):
        found(f"{location}/c.txt", tmp_path / "none")
