from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("cryptography", reason="signatures are an optional extra")

from checkpoints.draft import Request
from checkpoints.errors import SignatureError
from checkpoints.publish import publish
from checkpoints.signatures import checker, make_key, signer
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from tests.checkpoints.models import write_json, write_model


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    """Two publishers' keys: `a`, `a.pub`, `b`, `b.pub`."""
    paths: dict[str, Path] = {}
    for name in "ab":
        private, public = make_key()
        for path, data in ((tmp_path / name, private), (tmp_path / f"{name}.pub", public)):
            path.write_bytes(data)
            paths[path.name] = path
    return paths


def _trusting(root: Path, *keys: Path) -> Store:
    return Store(LocalFiles(root), "toy", check=checker(keys))


def test_a_version_of_a_trusted_publisher_is_read(tmp_path: Path, keys: dict[str, Path]) -> None:
    store = _trusting(tmp_path / "store", keys["a.pub"], keys["b.pub"])
    publish(write_model(tmp_path / "m"), store, Request("run", 1), sign=signer(keys["b"]))
    assert store.manifest(1).signature is not None


def test_unsigned_and_foreign_versions_are_refused(tmp_path: Path, keys: dict[str, Path]) -> None:
    anyone = Store(LocalFiles(tmp_path / "store"), "toy")
    publish(write_model(tmp_path / "m"), anyone, Request("run", 1))
    publish(write_model(tmp_path / "n", seed=2), anyone, Request("run", 2), sign=signer(keys["b"]))
    store = _trusting(tmp_path / "store", keys["a.pub"])
    with pytest.raises(SignatureError, match="toy version 1 is not signed"):
        store.manifest(1)
    with pytest.raises(SignatureError, match="who is not trusted here"):
        store.fetch(2, tmp_path / "out")


def test_a_manifest_altered_after_signing_is_refused(tmp_path: Path, keys: dict[str, Path]) -> None:
    store = _trusting(tmp_path / "store", keys["a.pub"])
    publish(write_model(tmp_path / "m"), store, Request("run", 1), sign=signer(keys["a"]))
    path = tmp_path / "store" / "versions" / "0000000001" / "manifest.json"
    write_json(path, {**msgspec.json.decode(path.read_bytes()), "step": 2})
    with pytest.raises(SignatureError, match="altered after it was signed"):
        store.manifest(1)


def test_files_that_are_no_keys_are_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    with pytest.raises(SignatureError, match="no private key"):
        signer(tmp_path / "x")
    with pytest.raises(SignatureError, match="no public key"):
        checker([tmp_path / "x"])
