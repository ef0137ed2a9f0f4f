"""The load of chaos runs, against an engine that does as it is told, and the verdict on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import cast

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule
from loadtests.chaos import means
from loadtests.chaos.load import Ended, Load
from loadtests.chaos.means import Clock, Disk, Valkey
from loadtests.chaos.story import EVENTS, Story
from loadtests.chaos.verdict import page, verdict
from loadtests.samples import Outcome
from loadtests.swap.scene import Scene
from loadtests.swap.traffic import Answer
from loadtests.wire import Target
from tests.drivers.waiting import eventually

V1, V2 = "v1-0a0a0a0a", "v2-0b0b0b0b"


async def loaded(behaviour: Behaviour, count: int = 16) -> Load:
    """After so many answers at least."""
    async with Fake.start(behaviour) as fake:
        load = Load(Target.of(fake.url), 200.0)
        load.start()
        try:
            await eventually(lambda: len(load.ended) >= count)
        finally:
            await asyncio.to_thread(load.stop)
    return load


def story(folder: Path) -> Story:
    """One in which nothing is broken."""
    nobody = cast(Scene, None)
    return Story(
        nobody, cast(Valkey, None), Disk(folder, own=False), Clock(folder / "clock", None), Random(1)
    )


def ended(version: str, logprob: float | None, sent_at: float = 0.0, *, started: bool = True) -> Ended:
    outcome = Outcome.OK if logprob is not None else Outcome.ERROR
    return Ended("computed", Answer(0, sent_at, sent_at + 1, outcome, version, logprob, ""), started, False)


def load_of(answers: Sequence[Ended]) -> Load:
    load = Load(Target("nowhere", 1), 1.0)
    load.ended, load.sent = list(answers), len(answers)
    return load


async def test_every_kind_of_answer_is_whole_and_names_its_weights() -> None:
    load = await loaded(Behaviour(version=V1))
    assert load.sent == len(load.ended)
    assert {each.kind for each in load.ended} == {"computed", "kept", "streamed"}
    assert all(each.ok and each.started and not each.again for each in load.ended)
    assert {each.answer.version for each in load.ended} == {V1}


async def test_what_was_reset_before_its_first_byte_is_sent_again_and_counted() -> None:
    reset = Rule(cut=Cut(how=Ending.RESET, after=Point.NOTHING), first=3)
    load = await loaded(Behaviour(version=V1, rules=(reset,)))
    assert sum(each.again for each in load.ended) >= 1
    assert all(each.ok for each in load.ended)


async def test_what_breaks_off_had_begun() -> None:
    cut = Rule(contains='"stream":true', cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=3))
    load = await loaded(Behaviour(version=V1, rules=(cut,)))
    broken = [each for each in load.ended if not each.ok]
    assert broken
    assert all(each.started and each.kind == "streamed" for each in broken)


def test_the_verdict_counts_what_must_not_be(tmp_path: Path) -> None:
    told = story(tmp_path)
    told.served = [(0.0, V1), (10.0, V2)]
    usual = [ended(V1, -1.0), ended(V1, -1.0), ended(V1, -1.0), ended(V2, -3.0, 11.0)]
    assert verdict(told, load_of(usual), 0, 2).clean
    wrong = [*usual, ended(V1, -2.0), ended(V1, -1.0, 12.0), ended("", None, started=False), ended("", None)]
    found = verdict(told, load_of(wrong), 3, 2)
    assert found.line() == (
        "requests=8 failed_unstarted=1 stale=1 mixed=1 leaked=3 engine_kills=0 redis_faults=0 swaps=2"
    )
    assert found.broken == 1
    assert not found.clean


def test_a_request_without_an_end_has_failed(tmp_path: Path) -> None:
    load = load_of([ended(V1, -1.0)])
    load.sent += 1
    assert verdict(story(tmp_path), load, 0, 0).failed_unstarted == 1


def test_the_page_tells_the_story(tmp_path: Path) -> None:
    told = story(tmp_path)
    told.tell("an engine was killed", "backend-0")
    load = load_of([ended(V1, -1.0)])
    shown = page(told, load, verdict(told, load, 0, 0))
    assert [row[1:] for row in shown.tables[0].rows] == [["an engine was killed", "backend-0"]]


def test_a_means_that_is_not_there_is_said_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = story(tmp_path)
    for name in ("the disk is full", "the clock jumps"):
        told.attempt(name)
    assert capsys.readouterr().out.count("left out") == 2
    assert {"the disk is full", "the clock jumps"} <= EVENTS.keys()


def test_a_clock_that_is_not_faked_changes_no_environment(tmp_path: Path) -> None:
    assert Clock(tmp_path / "clock", None).environment == {}
    made = means.clock(tmp_path)
    made.jump(-1800)
    assert made.file.read_text() == "-1800"
