"""One leads. When it is gone, however it went, another does."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from gateway.flow.cache.redis_client import connect
from gateway.rollout.lease import FileLease, RedisLease
from tests.drivers.valkey import valkey
from tests.drivers.waiting import eventually

_HOLDER = """
import asyncio, sys
from pathlib import Path
from gateway.rollout.lease import FileLease
assert asyncio.run(FileLease(Path(sys.argv[1])).hold())
print("held", flush=True)
sys.stdin.read()
"""


async def test_of_two_on_one_machine_one_holds_the_file(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "lock"), FileLease(tmp_path / "lock")
    assert await first.hold()
    assert not await second.hold()
    assert (first.held, second.held) == (True, False)
    assert await first.hold()
    await first.release()
    assert await second.hold()
    await second.release()


async def test_the_file_is_free_at_once_when_its_holder_is_killed(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _HOLDER, str(tmp_path / "lock")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    lease = FileLease(tmp_path / "lock")
    assert not await lease.hold()
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert await lease.hold()
    await lease.release()


async def test_of_two_by_redis_one_leads_and_the_next_has_a_higher_term() -> None:
    with valkey() as server:
        first = RedisLease(connect(server.url), "s", "a", ttl_s=60)
        second = RedisLease(connect(server.url), "s", "b", ttl_s=60)
        other = RedisLease(connect(server.url), "another store", "b", ttl_s=60)
        assert await first.hold()
        assert not await second.hold()
        assert await other.hold()
        assert await first.hold()
        assert first.term == 1
        await first.release()
        assert not first.held
        assert await second.hold()
        assert second.term == 2
        await second.release()
        await other.release()


async def test_a_leader_that_is_gone_without_a_word_is_followed() -> None:
    with valkey() as server:
        first = RedisLease(connect(server.url), "s", "a", ttl_s=0.3)
        second = RedisLease(connect(server.url), "s", "b", ttl_s=60)
        assert await first.hold()
        await eventually(second.hold)
        assert not first.held
        assert not await first.hold()
        await first.release()
        assert await second.hold()
        await second.release()


async def test_without_redis_nobody_leads_and_nothing_is_raised() -> None:
    with valkey() as server:
        url = server.url
    lease = RedisLease(connect(url), "s", "a")
    assert not await lease.hold()
    await lease.release()
