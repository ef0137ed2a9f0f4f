"""Operators see and steer rollouts, by HTTP and by `changeover rollout`; nobody else knows they could."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest

from backends.fake.trouble import Manner
from checkpoints.rollouts import Stage
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually
from tests.gateway.rollout.rolled import ADMIN, BASE_LABEL, Rolled, rolled
from tests.gateways import fakes, gateway_to

PATHS = [
    ("GET", "/admin/rollouts"),
    ("POST", "/admin/rollouts"),
    ("GET", "/admin/rollouts/r1"),
    ("POST", "/admin/rollouts/current/promote"),
    ("POST", "/admin/rollouts/current/rollback"),
    ("POST", "/admin/rollouts/current/pause"),
    ("POST", "/admin/rollouts/current/resume"),
    ("GET", "/admin/checkpoints"),
    ("GET", "/admin/journal"),
]


def _json(body: bytes) -> Any:
    return msgspec.json.decode(body)


async def _command(fleet: Rolled, *arguments: str) -> tuple[int, str]:
    """`changeover rollout …`: exit status and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "rollout", arguments[0]),
        *("--url", fleet.gateway.url, "--token", ADMIN, *arguments[1:]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.fault("X1")
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_nobody_gets_in_without_the_token(method: str, path: str) -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": "secret"}) as gateway:
        for headers in ([], [("authorization", "Bearer wrong")]):
            assert (await ask(gateway.url, path, b"", method=method, headers=headers)).status == 401
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        assert (await ask(gateway.url, path, b"", method=method)).status == 404


async def test_without_a_store_it_is_said_that_there_is_none() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": "secret"}) as gateway:
        headers = [("authorization", "Bearer secret")]
        answer = await ask(gateway.url, "/admin/rollouts", method="GET", headers=headers)
        assert answer.status == 404
        assert b"checkpoints.store" in answer.body


async def test_an_operator_starts_sees_and_takes_back_a_rollout() -> None:
    async with rolled(2, auto=False) as fleet:
        label = fleet.publish(1)
        started = await fleet.admin("POST", "/admin/rollouts", {"version": "latest"})
        assert started.status == 201, started.body
        await fleet.serves(1)
        shown = await fleet.shown()
        assert shown["serving"] == label
        assert shown["rollout"]["stage"] == "promoted"
        assert [member["place"] for member in shown["members"]] == ["at", "at"]
        assert shown["next"].startswith("2 of 2 members have")
        rollout = shown["rollout"]["id"]
        states = _json((await fleet.admin("GET", f"/admin/rollouts/{rollout}")).body)
        assert [state["stage"] for state in states][-1] == "promoted"
        back = await fleet.admin("POST", f"/admin/rollouts/{rollout}/rollback", {"reason": "too long"})
        assert back.status == 200, back.body
        await eventually(lambda: set(fleet.labels) == {BASE_LABEL}, within=20)
        await fleet.stage(Stage.PROMOTED)
        checkpoints = _json((await fleet.admin("GET", "/admin/checkpoints")).body)["checkpoints"]
        assert checkpoints[0]["quarantined"] == "too long"
        refused = await fleet.admin("POST", "/admin/rollouts", {"version": "1"})
        assert (refused.status, _json(refused.body)["error"]["code"]) == (409, "conflict")
        assert (await fleet.admin("POST", "/admin/rollouts", {"version": "1", "force": True})).status == 201
        await fleet.serves(1)
        journal = _json((await fleet.admin("GET", "/admin/journal?limit=500")).body)["journal"]
        assert [entry["event"] for entry in journal].count("rollout promoted") == 3


async def test_what_does_not_fit_is_refused_with_a_sentence() -> None:
    async with rolled(1, auto=False) as fleet:
        for method, path, body, status in (
            ("POST", "/admin/rollouts", {"version": "99"}, 404),
            ("POST", "/admin/rollouts", {"colour": "blue"}, 400),
            ("POST", "/admin/rollouts", {"mode": "sideways"}, 400),
            ("POST", "/admin/rollouts/current/promote", None, 404),
            ("GET", "/admin/rollouts/r7", None, 404),
            ("GET", "/admin/journal?limit=0", None, 400),
            ("GET", "/admin/rollouts?model=other", None, 404),
        ):
            answer = await fleet.admin(method, path, body)
            assert answer.status == status, (path, answer.body)
            assert _json(answer.body)["error"]["message"]


async def test_the_command_starts_waits_shows_pauses_and_goes_back() -> None:
    async with rolled(2, auto=False, manner=Manner(phase_s=0.05)) as fleet:
        label = fleet.publish(1)
        code, output = await _command(fleet, "start", "--wait")
        assert code == 0, output
        assert "promoted" in output
        code, output = await _command(fleet, "status", "--once")
        assert code == 0
        assert f"serves {label}" in output
        code, output = await _command(fleet, "status", "--json")
        assert _json(output.encode())["rollout"]["stage"] == "promoted"
        code, output = await _command(fleet, "pause")
        assert code == 1
        assert "is promoted and cannot be paused" in output
        code, output = await _command(fleet, "rollback", "--to", "0", "--wait")
        assert code == 0, output
        assert set(fleet.labels) == {BASE_LABEL}


async def test_the_command_says_what_is_wrong() -> None:
    async with rolled(1, auto=False) as fleet:
        code, output = await _command(fleet, "start", "--token", "wrong")
        assert (code, "does not know this token" in output) == (1, True)
        code, output = await _command(fleet, "start", "--url", "http://127.0.0.1:9")
        assert (code, "cannot be reached" in output) == (1, True)
