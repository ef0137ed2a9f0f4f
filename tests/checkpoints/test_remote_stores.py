"""One set of promises for stores that are not a folder: a real S3 server (moto's), a WebHDFS fake."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from checkpoints.draft import Request
from checkpoints.errors import ConflictError, IntegrityError, NotFoundError, StoreError
from checkpoints.publish import publish
from checkpoints.store.contract import Files
from checkpoints.store.store import Store
from checkpoints.store.webhdfs import WebHdfsFiles
from checkpoints.verify import verify_folder
from tests.checkpoints.models import write_model
from tests.checkpoints.webhdfs_fake import WebHdfs, running_webhdfs

BUCKET = "checkpoints"


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    """A real S3 server in a process of its own, with an empty bucket."""
    pytest.importorskip("moto", reason="moto's server stands in for S3")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if b"Running on" in line:
                break
        drain = threading.Thread(target=server.stdout.read, daemon=True)
        drain.start()
        httpx2.put(f"http://127.0.0.1:{port}/{BUCKET}", trust_env=False).raise_for_status()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        drain.join()
        server.stdout.close()


@pytest.fixture
def webhdfs() -> Iterator[WebHdfs]:
    with running_webhdfs() as server:
        yield server


@pytest.fixture(params=["s3", "webhdfs"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    """An empty store of each kind."""
    if request.param == "s3":
        pytest.importorskip("obstore")
        from checkpoints.store.s3 import open_s3

        yield open_s3(
            f"{BUCKET}/{tmp_path.name}",
            "toy",
            endpoint=request.getfixturevalue("s3_url"),
            access_key_id="testing",
            secret_access_key="testing",
            region="us-east-1",
            client_options={"allow_http": True},
        )
        return
    server = request.getfixturevalue("webhdfs")
    made = WebHdfsFiles(server.url, "/stores/toy", "trainer")
    yield made
    made.close()


@pytest.fixture
def store(files: Files) -> Store:
    return Store(files, "toy")


def test_a_version_goes_up_and_comes_down_whole(store: Store, tmp_path: Path) -> None:
    made = publish(write_model(tmp_path / "m", shards=3), store, Request("run", 1))
    assert store.versions() == [1]
    assert store.manifest(1) == made.manifest
    assert store.aliases.read("candidate").version == 1
    assert len(store.tensors(made.manifest)) == 21
    store.fetch(1, tmp_path / "out")
    assert verify_folder(tmp_path / "out", manifest=made.manifest).findings == ()


def test_publishing_again_gives_the_version_that_is_there(store: Store, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    publish(folder, store, Request("run", 1))
    assert publish(folder, store, Request("run", 1)).existing


def test_a_file_is_created_by_exactly_one(files: Files) -> None:
    barrier = threading.Barrier(8)

    def create(number: int) -> bool:
        barrier.wait(20)
        return files.create("aliases/serving/0000000001.json", str(number).encode())

    files.create("other/first.json", b"1")  # makes the folders and, on S3, tries the condition
    with ThreadPoolExecutor(8) as pool:
        won = [number for number, done in enumerate(pool.map(create, range(8))) if done]
    assert len(won) == 1
    assert files.read("aliases/serving/0000000001.json") == str(won[0]).encode()


def test_two_publishers_take_different_numbers(store: Store, tmp_path: Path) -> None:
    folders = [write_model(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]

    def run(number: int) -> int:
        return publish(folders[number], store, Request(f"run{number}", 1)).manifest.version

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(run, range(2))) == [1, 2]


def test_an_alias_moves_by_compare_and_swap(store: Store, tmp_path: Path) -> None:
    for step in (1, 2):
        publish(write_model(tmp_path / str(step), seed=step), store, Request("run", step))
    seen = store.aliases.read("serving")
    store.point("serving", 1, seen=seen, by="a")
    with pytest.raises(ConflictError):
        store.point("serving", 2, seen=seen, by="b")


def test_retention_removes_manifest_and_data(store: Store, files: Files, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        publish(write_model(tmp_path / str(step), seed=step), store, Request("run", step))
    data = store.manifest(1).data
    assert store.collect(keep_last=2).remove == (1,)
    assert store.versions() == [2, 3]
    assert files.names(data) == []
    with pytest.raises(NotFoundError):
        store.manifest(1)


def test_an_altered_file_is_noticed(store: Store, files: Files, tmp_path: Path) -> None:
    manifest = publish(write_model(tmp_path / "m"), store, Request("run", 1)).manifest
    where = f"{manifest.data}/config.json"
    files.remove(where)
    assert files.create(where, b"{}")
    with pytest.raises(IntegrityError):
        store.fetch(1, tmp_path / "out")


def test_what_is_not_there_is_not_there(files: Files, tmp_path: Path) -> None:
    assert files.names("nowhere") == []
    assert files.read("nowhere/file.json") is None
    files.remove("nowhere/file.json")
    with pytest.raises(NotFoundError):
        files.fetch("nowhere/file.json", tmp_path / "x", None)


def test_data_of_a_writer_that_died_is_swept_when_it_is_old(webhdfs: WebHdfs, tmp_path: Path) -> None:
    files = WebHdfsFiles(webhdfs.url, "/stores/toy", None)
    store = Store(files, "toy")
    manifest = publish(write_model(tmp_path / "m"), store, Request("run", 1)).manifest
    files.write("data/dead/model.safetensors", iter([b"half"]))
    assert files.sweep(lambda: {manifest.data}) == []
    webhdfs.old = {"dead", manifest.data.removeprefix("data/")}
    assert files.sweep(lambda: {manifest.data}) == ["data/dead"]
    store.fetch(1, tmp_path / "out")
    files.close()


def test_publishing_leaves_the_old_data_of_other_versions_alone(webhdfs: WebHdfs, tmp_path: Path) -> None:
    files = WebHdfsFiles(webhdfs.url, "/stores/toy", None)
    store = Store(files, "toy")
    first = publish(write_model(tmp_path / "a", seed=1), store, Request("run", 1)).manifest
    webhdfs.old = {first.data.removeprefix("data/")}
    publish(write_model(tmp_path / "b", seed=2), store, Request("run", 2))
    store.collect(keep_last=5)
    store.fetch(1, tmp_path / "out")
    files.close()


def test_a_store_that_is_not_reachable_says_so(tmp_path: Path) -> None:
    files = WebHdfsFiles("http://127.0.0.1:9", "/stores/toy", None)
    with pytest.raises(StoreError, match="HDFS cannot be reached"):
        publish(write_model(tmp_path / "m"), Store(files, "toy"), Request("run", 1))
    files.close()
