"""`changeover publish`, `checkpoints …` and `verify` as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from checkpoints.probe.contract import Probe, encode_probe
from checkpoints.store.open import open_store
from tests.checkpoints.engine_fake import running_engine
from tests.checkpoints.models import write_model
from tests.checkpoints.test_replay import _probe as probe_of


def run(*arguments: object, fails: bool = False) -> str:
    """What the command printed; stderr where it should fail."""
    done = subprocess.run(
        [sys.executable, "-c", "from gateway.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr + done.stdout if fails else done.stdout


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two versions, the first of which is served."""
    for step in (1, 2):
        folder = write_model(tmp_path / "run-a" / f"checkpoint-{step}", seed=step)
        run(
            "publish", folder, "--store", tmp_path / "store", "--metrics", f"reward={step}", "--probe", "none"
        )
    return tmp_path / "store"


def test_publish_takes_model_run_and_step_from_the_folders_names(store: Path) -> None:
    found = msgspec.json.decode(run("checkpoints", "show", "latest", "--store", store, "--json"))
    assert (found["model"], found["run"], found["step"], found["version"]) == ("run-a", "run-a", 2, 2)
    assert found["metrics"] == {"reward": 2}


def test_list_shows_aliases_and_metrics(store: Path) -> None:
    lines = run("checkpoints", "list", "--store", store).splitlines()
    assert len(lines) == 3
    assert "candidate" in lines[2]
    assert "reward=2" in lines[2]
    found = msgspec.json.decode(run("checkpoints", "list", "--store", store, "--json"))
    assert [item["version"] for item in found] == [1, 2]


def test_diff_names_the_tensors_that_changed(store: Path) -> None:
    found = msgspec.json.decode(run("checkpoints", "diff", 1, 2, "--store", store, "--json"))
    assert len(found["tensors changed"]) == 21
    assert found["tensors unchanged"] == found["launch facts"] == []


def test_pinned_versions_survive_gc(store: Path) -> None:
    run("checkpoints", "pin", 1, "--store", store)
    assert "removed 0 versions" in run("checkpoints", "gc", "--keep", 1, "--store", store)
    run("checkpoints", "pin", 1, "--remove", "--store", store)
    assert "would remove 1 versions" in run("checkpoints", "gc", "--keep", 1, "--dry-run", "--store", store)
    assert "removed 1 versions" in run("checkpoints", "gc", "--keep", 1, "--store", store)


def test_verify_ends_with_1_and_the_reason_for_a_version_that_was_altered(store: Path) -> None:
    assert run("checkpoints", "verify", 2, "--store", store).startswith("good, swap in_place")
    path = store / "run-a" / "versions" / "0000000002" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert "digest_differs" in run("checkpoints", "verify", 2, "--store", store, fails=True)


def test_a_refused_folder_ends_with_sentences(store: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "checkpoint-3", seed=3)
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04 nothing of the kind")
    said = run("publish", folder, "--store", store, "--run", "run-a", fails=True)
    assert "is a pickle" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("checkpoints", "show", "9"), "has no version 9"),
        (("checkpoints", "show", "serving"), "no version called 'serving'"),
        (("publish", "nowhere", "--step", "1"), "nowhere: No such file or directory"),
        (("verify", "latest", "--against", "http://127.0.0.1:9"), "was published without a probe"),
    ],
)
def test_mistakes_end_with_a_sentence(arguments: tuple[str, ...], message: str, store: Path) -> None:
    said = run(*arguments, "--store", store, fails=True)
    assert message in said
    assert "Traceback" not in said


@pytest.fixture
def probe() -> Probe:
    return probe_of()


def test_verify_judges_an_engine_and_writes_text_json_and_a_page(tmp_path: Path, probe: Probe) -> None:
    file = tmp_path / "probe.json"
    file.write_bytes(encode_probe(probe))
    with running_engine() as engine:
        written = ("--html", tmp_path / "r.html", "--json", tmp_path / "r.json")
        arguments = ("verify", file, "--against", engine.url, *written)
        assert "passed" in run(*arguments)
        engine.seed = 1
        assert "failed: not_moved" in run(*arguments, fails=True)
    assert msgspec.json.decode((tmp_path / "r.json").read_bytes())["diagnosis"]["cause"] == "not_moved"
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_a_verdict_on_a_version_is_kept_with_its_numbers_and_the_engines_noise(
    tmp_path: Path, probe: Probe
) -> None:
    folder = write_model(tmp_path / "checkpoint-1")
    (tmp_path / "probe.json").write_bytes(encode_probe(probe))
    store = tmp_path / "store"
    run(
        "publish",
        folder,
        "--store",
        store,
        "--model",
        "toy",
        "--run",
        "r",
        "--probe",
        tmp_path / "probe.json",
    )
    with running_engine() as engine:
        run("verify", "latest", "--store", store, "--against", engine.url)
    entry = open_store(str(store), "toy").journal.last(1)[0]
    assert (entry.event, entry.version, entry.detail["passed"]) == ("verdict", 1, True)
    assert {"numbers", "noise", "limits", "prefix"} <= entry.detail.keys()
