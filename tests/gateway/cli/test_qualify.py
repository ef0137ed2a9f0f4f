"""`changeover qualify` where no engine is needed: lists, and what cannot be tried."""

from __future__ import annotations

from pathlib import Path

import msgspec

from backends.qualify.records import keep
from checkpoints.store.open import open_files
from tests.backends.qualify.test_records import HERE, record
from tests.gateway.cli.conftest import Run


def test_the_records_of_a_store_are_listed(run: Run, tmp_path: Path) -> None:
    kept = keep(open_files(str(tmp_path / "store"), "policy"), record())

    shown = run("qualify", "--store", "store", "--name", "policy", "--list")
    as_json = run("qualify", "--store", "store", "--name", "policy", "--list", "--json")

    assert f"{HERE.key}  qualified" in shown.out
    assert "LlamaForCausalLM, tensor parallel 1, eager" in shown.out
    assert msgspec.json.decode(as_json.out)[0]["digest"] == kept.digest


def test_a_store_without_records_says_how_to_make_one(run: Run) -> None:
    shown = run("qualify", "--list")

    assert shown.code == 0
    assert "changeover qualify MODEL" in shown.out


def test_a_model_that_is_not_there_is_no_verdict(run: Run) -> None:
    asked = run("qualify", "./nowhere")

    assert asked.code == 1
    assert "there is no such folder" in asked.err or "vLLM is not installed" in asked.err


def test_a_version_that_is_not_there_is_said(run: Run) -> None:
    asked = run("qualify", "--name", "policy", "--version", "7")

    assert asked.code == 1
    assert "policy has no version 7" in asked.err


def test_where_no_engine_runs_there_is_nothing_to_qualify(run: Run, tmp_path: Path) -> None:
    (tmp_path / "infer_config.yaml").write_text("endpoints: ['http://127.0.0.1:8001']\n")

    assert run("qualify").code == 2
