from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.tasks import TaskOwner


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_task_carries_its_owners_name_and_its_own() -> None:
    async with TaskOwner("fleet") as tasks:
        task = tasks.start("probe a", forever())
        assert tasks.names() == ["fleet:probe a"]
        assert task.get_name() == "fleet:probe a"
    assert tasks.names() == []
    assert task.cancelled()


async def test_who_awaits_a_task_gets_its_result() -> None:
    async def answer() -> int:
        return 42

    async with TaskOwner("test") as tasks:
        assert await tasks.start("answer", answer()) == 42


async def test_an_unexpected_error_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no luck")

    failed: list[str] = []
    with caplog.at_level(logging.ERROR):
        async with TaskOwner("fleet", failed=failed.append) as tasks:
            with pytest.raises(OSError, match="no luck"):
                await tasks.start("probe", fail())
    assert failed == ["fleet:probe"]
    assert "fleet:probe failed" in caplog.text


async def test_cancelling_is_no_failure() -> None:
    failed: list[str] = []
    async with TaskOwner("test", failed=failed.append) as tasks:
        tasks.start("sleeper", forever()).cancel()
    assert failed == []


async def test_a_closed_owner_starts_nothing() -> None:
    tasks = TaskOwner("test")
    await tasks.close()
    with pytest.raises(RuntimeError, match="is closed"):
        tasks.start("late", forever())
    await tasks.close()


async def test_a_task_that_loses_its_cancellation_ends_all_the_same() -> None:
    """`wait_for` loses it where the result comes in the same turn, up to Python 3.11; others may as well."""
    lost = asyncio.Event()

    async def loses_one() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            lost.set()
        await forever()

    tasks = TaskOwner("test")
    task = tasks.start("loses one", loses_one())
    await asyncio.sleep(0)
    await tasks.close()
    assert lost.is_set()
    assert task.cancelled()


async def test_a_task_that_will_not_end_is_named(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    tasks = TaskOwner("test")
    task = tasks.start("stubborn", stubborn())
    await asyncio.sleep(0)
    await tasks.close(timeout_s=0.01)
    assert "test:stubborn does not end" in caplog.text
    release.set()
    await task


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = TaskOwner("test")
    other = tasks.start("other", forever())
    await tasks.start("closer", tasks.close())
    assert other.cancelled()
