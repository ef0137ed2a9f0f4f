"""`changeover check`."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import msgspec
import pytest

from tests.gateway.cli.conftest import Run


def test_a_good_file_is_shown_with_origins(run: Run) -> None:
    Path("infer_config.yaml").write_text("server: {port: 81}\n")
    ran = run("check", "--changed-only", "--set", "cache.type=off", "--set", "retries.attempts=0")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split("#")[1].strip() for line in ran.out.splitlines() if "#" in line] == [
        "infer_config.yaml:1",
        "flag --set retries.attempts",
        "flag --set cache.type",
    ]


def test_a_bad_file_is_told_whole_and_ends_with_2(run: Run) -> None:
    Path("bad.yaml").write_text("server: {prot: 81}\ncache: {type: Redos}\n")
    ran = run("check", "--config", "bad.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "The configuration cannot be used (2 problems):\n"
        "  bad.yaml:1: server.prot: is no known key; did you mean server.port?\n"
        "  bad.yaml:2: cache.type: should be one of off, memory, redis, tiered, got 'redos'; "
        "did you mean redis?\n"
    )


def test_json_for_programs_good_and_bad(run: Run) -> None:
    Path("bad.yaml").write_text("server: {prot: 81}\n")
    bad = run("check", "-c", "bad.yaml", "--json")
    assert bad.code == 2
    assert msgspec.json.decode(bad.out) == {
        "problems": [
            {
                "file": "bad.yaml",
                "line": 1,
                "key": "server.prot",
                "what": "is no known key",
                "suggestion": "did you mean server.port?",
                "origin": "bad.yaml:1",
            }
        ]
    }
    good = run("check", "--json", "--set", "server.port=81")
    assert good.code == 0
    assert msgspec.json.decode(good.out)["server"]["port"]["value"] == 81


def test_an_assignment_without_equals_sign_is_refused(run: Run) -> None:
    ran = run("check", "--set", "server.port")
    assert ran.code == 2
    assert ran.err == "--set server.port: write key=value, as --set server.port=8001\n"


def test_the_environment_is_heard(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEOVER_SERVER__PORT", "82")
    assert "environment CHANGEOVER_SERVER__PORT" in run("check", "--changed-only").out


def test_a_key_is_hashed_without_its_line_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sesame\n"))
    assert run("check", "--hash-key").out == hashlib.sha256(b"sesame").hexdigest() + "\n"


def test_no_key_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = run("check", "--hash-key")
    assert (ran.code, ran.out) == (2, "")
