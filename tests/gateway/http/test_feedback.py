"""What users say of answers comes to lie in the store, once, or they are told that it does not."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import msgspec

from checkpoints.feedback import MAX_TEXT, FeedbackFiles
from checkpoints.store.open import open_files
from tests.drivers.raw import ask
from tests.gateways import fakes, gateway_to

WORD: dict[str, Any] = {"request_id": "r-1", "rating": 1, "comment": "good"}


def kept(store: Path, model: str = "default") -> FeedbackFiles:
    return FeedbackFiles(open_files(str(store), model))


async def test_a_rating_is_stored_before_it_is_answered(tmp_path: Path) -> None:
    settings = {"store": str(tmp_path / "store"), "model": "policy"}
    async with fakes(1) as (fake,), gateway_to(fake, checkpoints=settings) as gateway:
        answer = await ask(gateway.url, "/feedback", WORD)
        assert answer.status == 201, answer.body
        (entry,) = kept(tmp_path / "store", "policy").read()
        assert (entry.request_id, entry.rating, entry.comment, entry.by) == ("r-1", 1.0, "good", "")
        assert entry.at


async def test_ratings_of_the_same_moment_share_a_file(tmp_path: Path) -> None:
    settings = {"store": str(tmp_path / "store"), "model": "policy"}
    async with fakes(1) as (fake,), gateway_to(fake, checkpoints=settings) as gateway:
        words = [{**WORD, "request_id": f"r-{number}"} for number in range(20)]
        answers = await asyncio.gather(*(ask(gateway.url, "/feedback", word) for word in words))
        assert {answer.status for answer in answers} == {201}
        files = open_files(str(tmp_path / "store"), "policy")
        assert len(files.names("feedback")) < len(words)
        assert {entry.request_id for entry in kept(tmp_path / "store", "policy").read()} == {
            word["request_id"] for word in words
        }


async def test_what_is_no_feedback_is_refused_with_the_reason(tmp_path: Path) -> None:
    settings = {"store": str(tmp_path / "store"), "model": "policy"}
    bad: list[Any] = [
        {},
        {**WORD, "rating": 2},
        {**WORD, "request_id": ""},
        {**WORD, "stars": 5},
        {**WORD, "comment": "x" * (MAX_TEXT + 1)},
    ]
    async with fakes(1) as (fake,), gateway_to(fake, checkpoints=settings) as gateway:
        for word in bad:
            answer = await ask(gateway.url, "/feedback", word)
            assert answer.status == 400, word
            assert msgspec.json.decode(answer.body)["error"]["code"] == "invalid_request_error"
        assert kept(tmp_path / "store", "policy").read() == []


async def test_only_known_keys_may_rate_and_their_name_is_kept(tmp_path: Path) -> None:
    keys = [{"name": "alice", "sha256": hashlib.sha256(b"secret").hexdigest()}]
    settings = {"store": str(tmp_path / "store"), "model": "policy"}
    async with (
        fakes(1) as (fake,),
        gateway_to(fake, checkpoints=settings, auth={"keys": keys}) as gateway,
    ):
        assert (await ask(gateway.url, "/feedback", WORD)).status == 401
        word = {**WORD, "by": "mallory"}
        answer = await ask(gateway.url, "/feedback", word, headers=[("authorization", "Bearer secret")])
        assert answer.status == 201
        assert [entry.by for entry in kept(tmp_path / "store", "policy").read()] == ["alice"]


async def test_without_a_store_nobody_is_told_that_it_was_kept() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        assert (await ask(gateway.url, "/feedback", WORD)).status == 404


async def test_a_store_that_fails_is_said_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    settings = {"store": str(tmp_path / "store"), "model": "policy"}
    async with fakes(1) as (fake,), gateway_to(fake, checkpoints=settings) as gateway:
        (tmp_path / "store" / "policy").mkdir(exist_ok=True)
        (tmp_path / "store" / "policy" / "feedback").write_text("no folder")
        answer = await ask(gateway.url, "/feedback", WORD)
        assert answer.status == 502
        assert msgspec.json.decode(answer.body)["error"]["code"] == "backend_failed"
