from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from checkpoints.draft import Request
from checkpoints.errors import FencedError, IntegrityError, RefusedError, SourceChangedError, StoreError
from checkpoints.publish import publish
from checkpoints.scan import Scan
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from checkpoints.verdict import Code, Swap
from checkpoints.verify import verify_folder
from tests.checkpoints.models import CONFIG, weights, write_json, write_model

TIED = {**CONFIG, "tie_word_embeddings": True}


def test_a_published_version_is_whole_and_named(store: Store, tmp_path: Path) -> None:
    made = publish(write_model(tmp_path / "m", shards=3), store, Request("run", 7, metrics={"reward": 0.5}))
    manifest = store.manifest(1)
    assert manifest == made.manifest
    assert (manifest.run, manifest.step, manifest.parent, manifest.kind) == ("run", 7, None, "full")
    assert (manifest.architecture, manifest.dtype, manifest.tensor_count) == ("LlamaForCausalLM", "BF16", 21)
    assert manifest.metrics == {"reward": 0.5}
    assert all(entry.digest for entry in store.tensors(manifest))
    assert store.aliases.read("candidate").version == 1
    assert [entry.event for entry in store.journal.last()] == ["published", "alias candidate"]


def test_publishing_the_same_again_gives_the_version_that_is_there(store: Store, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    first = publish(folder, store, Request("run", 1))
    again = publish(folder, store, Request("run", 1))
    assert (again.manifest, again.existing) == (first.manifest, True)
    assert store.versions() == [1]


def test_the_same_step_with_other_weights_is_refused(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "a", seed=1), store, Request("run", 1))
    with pytest.raises(FencedError, match="version 1 with other contents"):
        publish(write_model(tmp_path / "b", seed=2), store, Request("run", 1))


def test_a_step_behind_the_newest_is_refused(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "a", seed=1), store, Request("run", 9))
    with pytest.raises(FencedError, match="step 8 is behind step 9"):
        publish(write_model(tmp_path / "b", seed=2), store, Request("run", 8))


def test_a_superseded_run_stays_out_until_it_takes_over(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "a", seed=1), store, Request("old", 1))
    publish(write_model(tmp_path / "b", seed=2), store, Request("new", 1))
    late = write_model(tmp_path / "c", seed=3)
    for _ in range(2):
        with pytest.raises(FencedError, match="run old was superseded by run new"):
            publish(late, store, Request("old", 2))
    assert publish(late, store, Request("old", 2, take_over=True)).manifest.version == 3
    with pytest.raises(FencedError, match="run new was superseded by run old"):
        publish(write_model(tmp_path / "d", seed=4), store, Request("new", 2))


def test_trainer_state_is_left_out(store: Store, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "trainer_state.json"):
        (folder / name).write_bytes(b"\x80\x02.")
    made = publish(folder, store, Request("run", 1))
    assert set(made.left_out) == {
        "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "trainer_state.json",
    }  # fmt: skip
    assert {entry.path for entry in made.manifest.files} >= {"model.safetensors", "config.json"}


class _ChangingStaging(LocalFiles):
    """A store during whose copying the trainer does something to its folder."""

    def __init__(self, root: Path, act: threading.Event, done: threading.Event) -> None:
        super().__init__(root)
        self._act, self._done = act, done

    def stage(self):  # type: ignore[no-untyped-def]
        staging = super().stage()
        self._act.set()
        assert self._done.wait(10)
        return staging


@pytest.mark.parametrize("what", ["rewrite", "remove", "add"])
def test_a_source_that_changes_meanwhile_is_not_published(what: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    act, done = threading.Event(), threading.Event()
    store = Store(_ChangingStaging(tmp_path / "store", act, done), "toy")

    def trainer() -> None:
        act.wait(10)
        if what == "rewrite":
            write_model(folder, seed=9)
        elif what == "remove":
            (folder / "model.safetensors").unlink()
        else:
            write_json(folder / "added_tokens.json", {})
        done.set()

    thread = threading.Thread(target=trainer)
    thread.start()
    with pytest.raises(SourceChangedError):
        publish(folder, store, Request("run", 1))
    thread.join()
    assert store.versions() == []
    assert [path.name for path in (tmp_path / "store" / ".staging").iterdir()] == []


def test_a_tied_model_can_be_published_untied(store: Store, tmp_path: Path) -> None:
    tensors = weights(TIED, seed=3)
    folder = write_model(tmp_path / "m", tensors, TIED, shards=2)
    made = publish(folder, store, Request("run", 1, untie=True))
    assert made.manifest.form.kind == "untied"
    target = tmp_path / "out"
    store.fetch(1, target)
    verdict = verify_folder(target, manifest=made.manifest)
    assert verdict.findings == ()
    index = {entry.name: entry for entry in store.tensors(made.manifest)}
    assert index["lm_head.weight"].shape == (64, 16)
    assert index["lm_head.weight"].digest == index["model.embed_tokens.weight"].digest
    config = msgspec.json.decode((target / "config.json").read_bytes())
    assert config == {**TIED, "tie_word_embeddings": False}
    head = tensors["model.embed_tokens.weight"][2]
    assert sum(path.read_bytes().count(head) for path in target.glob("*.safetensors")) == 2


def test_the_next_version_takes_the_form_of_the_one_before(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "a", seed=1, config=TIED), store, Request("run", 1, untie=True))
    second = publish(write_model(tmp_path / "b", seed=2, config=TIED), store, Request("run", 2))
    assert second.manifest.form.kind == "untied"


def test_a_tied_model_as_it_is_gets_a_remark(tmp_path: Path) -> None:
    verdict = verify_folder(write_model(tmp_path / "m", config=TIED))
    assert not verdict.refused
    assert [finding.code for finding in verdict.findings] == [Code.TIED]


def test_what_needs_a_restart_is_published_on_the_callers_word(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "a", seed=1), store, Request("run", 1))
    other = write_model(tmp_path / "b", seed=2, config={**CONFIG, "num_hidden_layers": 1})
    with pytest.raises(RefusedError):
        publish(other, store, Request("run", 2))
    publish(other, store, Request("run", 2, restart_allowed=True))
    served = store.served(1)
    assert verify_folder(other, served=served, restart_allowed=True).swap is Swap.RESTART


def test_a_fetch_checks_every_byte(store: Store, tmp_path: Path) -> None:
    publish(write_model(tmp_path / "m"), store, Request("run", 1))
    path = tmp_path / "store" / "versions" / "0000000001" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(IntegrityError, match=r"model\.safetensors was altered"):
        store.fetch(1, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_fetched_version_is_the_published_one(store: Store, tmp_path: Path) -> None:
    made = publish(write_model(tmp_path / "m", shards=3), store, Request("run", 1))
    told: list[tuple[int, int]] = []
    assert store.fetch(1, tmp_path / "out", lambda done, total: told.append((done, total))) == made.manifest
    assert not verify_folder(tmp_path / "out", manifest=made.manifest).findings
    assert told[-1] == (made.manifest.size(), made.manifest.size())
    assert store.holds.announcements() == {}


def test_sampling_finds_what_is_wrong_with_a_whole_tensor(tmp_path: Path) -> None:
    tensors = weights(seed=1)
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = ("BF16", tensors[name][1], b"\xc0\x7f" * (16 * 32))
    folder = write_model(tmp_path / "m", tensors)
    assert verify_folder(folder, scan=Scan.SAMPLED).codes() == {Code.NOT_FINITE}
    assert verify_folder(folder, scan=Scan.NONE).codes() == set()


def test_a_missing_folder_is_an_error_with_its_name(store: Store, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        publish(tmp_path / "nowhere", store, Request("run", 1))


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        publish(
            write_model(tmp_path / "m"),
            Store(LocalFiles(tmp_path / "file" / "store"), "toy"),
            Request("r", 1),
        )
