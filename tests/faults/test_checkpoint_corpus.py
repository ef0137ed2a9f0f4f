"""S2: what is wrong with a checkpoint is found before any engine is touched, with reason and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints.draft import Request
from checkpoints.errors import ManifestError, RefusedError
from checkpoints.publish import publish
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from checkpoints.verdict import Code
from checkpoints.verify import verify_folder
from tests.checkpoints.corpus import STORED_KINDS, TRAINER_KINDS, Kind
from tests.checkpoints.models import write_model

pytestmark = pytest.mark.fault("S2")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store whose version 1 is good."""
    store = Store(LocalFiles(tmp_path / "store"), "toy")
    publish(write_model(tmp_path / "good", seed=1), store, Request("run", 1))
    return store


@pytest.mark.parametrize("kind", TRAINER_KINDS, ids=lambda kind: kind.name)
def test_a_broken_folder_is_refused_before_it_is_copied(kind: Kind, store: Store, tmp_path: Path) -> None:
    kind.make(tmp_path / "bad")
    with pytest.raises(RefusedError) as refused:
        publish(tmp_path / "bad", store, Request("run", 2))
    assert refused.value.verdict.codes() & kind.seen, refused.value.verdict.text()
    assert all(finding.names for finding in refused.value.verdict.findings if finding.refuses)
    assert store.versions() == [1]


@pytest.mark.parametrize("kind", STORED_KINDS, ids=lambda kind: kind.name)
def test_a_version_that_was_altered_is_refused(kind: Kind, store: Store) -> None:
    folder = store.files.local("versions/0000000001")
    assert folder is not None
    kind.make(folder)
    if kind.seen == {Code.MANIFEST}:
        with pytest.raises(ManifestError):
            store.manifest(1)
        return
    verdict = verify_folder(folder, manifest=store.manifest(1))
    assert verdict.codes() & kind.seen, verdict.text()


def test_a_good_checkpoint_is_not_refused(store: Store, tmp_path: Path) -> None:
    made = publish(write_model(tmp_path / "better", seed=2, shards=1), store, Request("run", 2))
    folder = store.files.local(made.manifest.data)
    assert folder is not None
    verdict = verify_folder(folder, manifest=made.manifest, served=store.served(1))
    assert verdict.findings == ()
