"""B10: names are looked up again and again; what fails keeps what it gave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from gateway.fleet.discovery import Names, fixed, system_look_up
from gateway.settings.tree import Endpoint

DNS = Endpoint(url="dns://engines.example:9000", weight=2.0)
OTHER = Endpoint(url="dns://others.example:9001")
PLAIN = Endpoint(url="http://10.0.0.9:8000")


class Resolver:
    """Answers from a table; an exception in it is raised."""

    def __init__(self, **answers: Sequence[str] | Exception) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []

    async def look_up(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        answer = self.answers[host.partition(".")[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer


def members(names: Names) -> list[str]:
    return [member.name for member in names.members]


async def test_each_address_of_a_name_is_a_member() -> None:
    resolver = Resolver(engines=["10.0.0.2", "10.0.0.1", "10.0.0.2"])
    names = Names([DNS, PLAIN], resolver.look_up)
    assert members(names) == []
    await names.refresh()
    assert resolver.asked == [("engines.example", 9000)]
    assert members(names) == ["10.0.0.1:9000", "10.0.0.2:9000"]
    assert [member.weight for member in names.members] == [2.0, 2.0]
    assert [member.name for member in fixed([DNS, PLAIN])] == ["10.0.0.9:8000"]


@pytest.mark.parametrize(
    "failure", [OSError("no such host"), TimeoutError(), UnicodeError("label too long"), []], ids=repr
)
async def test_a_failure_or_an_empty_answer_keeps_what_is_known(
    failure: Exception | list[str], caplog: pytest.LogCaptureFixture
) -> None:
    resolver = Resolver(engines=["10.0.0.1"])
    names = Names([DNS], resolver.look_up)
    await names.refresh()
    resolver.answers["engines"] = failure
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            await names.refresh()
            assert members(names) == ["10.0.0.1:9000"]
        resolver.answers["engines"] = ["10.0.0.2"]
        await names.refresh()
    assert members(names) == ["10.0.0.2:9000"]
    assert len(caplog.records) == 2, "a line at each change, not one at each look-up"


async def test_a_name_that_fails_holds_up_no_other() -> None:
    resolver = Resolver(engines=OSError("no such host"), others=["10.0.1.1"])
    names = Names([DNS, OTHER], resolver.look_up)
    await names.refresh()
    assert members(names) == ["10.0.1.1:9001"]


async def test_a_reload_keeps_what_is_known_of_names_that_stay() -> None:
    resolver = Resolver(engines=["10.0.0.1"], others=["10.0.1.1"])
    names = Names([DNS, OTHER], resolver.look_up)
    await names.refresh()
    resolver.answers["engines"] = OSError("no such host")
    names.follow([DNS])
    await names.refresh()
    assert members(names) == ["10.0.0.1:9000"]
    names.follow([PLAIN])
    assert not names
    assert members(names) == []


async def test_a_look_up_can_be_cancelled() -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    names = Names([DNS], silent)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await names.refresh()


async def test_the_system_knows_this_machine() -> None:
    assert "127.0.0.1" in await system_look_up("localhost", 80)
