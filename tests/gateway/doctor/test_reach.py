"""The doctor at real stores, Redis servers, ports and folders."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import msgspec

from backends.models.tiny import write_tiny_llama
from gateway.doctor import gather, reach, tokenizers
from gateway.doctor.finding import Level
from tests.drivers.valkey import valkey


def test_a_folder_that_works_as_a_store_is_left_as_it_was(tmp_path: Path) -> None:
    findings = reach.store(str(tmp_path))
    assert {finding.level for finding in findings} == {Level.OK}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_store_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    (finding,) = reach.store(str(tmp_path / "store"))
    assert finding.level is Level.ERROR
    (unknown,) = reach.store("ftp://somewhere")
    assert unknown.level is Level.ERROR and "ftp" in unknown.text


def test_redis_answers_or_is_missed() -> None:
    with valkey() as server:
        findings = reach.redis(server.url)
    assert {finding.level for finding in findings} == {Level.OK}
    (missed,) = reach.redis("redis://user:secret@127.0.0.1:1")
    assert missed.level is Level.ERROR
    assert "secret" not in missed.topic + missed.text


def test_a_port_is_taken_while_somebody_listens() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert gather.port_taken("127.0.0.1", port) == "in use"
    assert gather.port_taken("127.0.0.1", port) is None


def test_another_tokenizer_or_template_is_named(tmp_path: Path) -> None:
    engine, trainer = tmp_path / "engine", tmp_path / "trainer"
    engine.mkdir()
    write_tiny_llama(engine)
    shutil.copytree(engine, trainer)
    (same,) = tokenizers.check(engine, trainer, None, "m")
    assert same.level is Level.OK
    config = msgspec.json.decode((trainer / "tokenizer_config.json").read_bytes())
    (trainer / "tokenizer_config.json").write_bytes(msgspec.json.encode({**config, "chat_template": "other"}))
    (differ,) = tokenizers.check(engine, trainer, None, "m")
    assert differ.level is Level.ERROR
    assert "the chat template" in differ.text and "the tokenizer," not in differ.text
