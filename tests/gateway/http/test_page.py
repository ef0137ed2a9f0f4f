"""The operator's page: only with a token, nothing in it by itself, and no other site can act with it."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.drivers.raw import Response, ask
from tests.gateway.rollout.rolled import ADMIN, MODEL, rolled
from tests.gateways import Running, fakes, gateway_to

TOKEN = "let-me-in"
KNOWN = [("authorization", f"Bearer {TOKEN}")]
STATIC = ["page.js", "api.js", "shown.js", "charts.js", "page.css", "uplot.js", "uplot.css", "icon.svg"]


async def _static(gateway: Running) -> dict[str, Response]:
    """Every file of the page, asked for as a browser does: without a token."""
    paths = ["/admin", *(f"/admin/page/{name}" for name in STATIC)]
    return {path: await ask(gateway.url, path, method="GET") for path in paths}


@pytest.mark.fault("X1")
async def test_without_a_configured_token_there_is_no_page() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path in ("/admin", "/admin/page/page.js", "/admin/figures"):
            assert (await ask(gateway.url, path, method="GET", headers=KNOWN)).status == 404, path


@pytest.mark.fault("X1")
async def test_figures_are_for_those_who_know_the_token() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": TOKEN}) as gateway:
        cookie = [("cookie", f"token={TOKEN}; authorization=Bearer {TOKEN}")]
        for headers in ([], [("authorization", "Bearer wrong")], cookie):
            assert (await ask(gateway.url, "/admin/figures", method="GET", headers=headers)).status == 401
        assert (await ask(gateway.url, f"/admin/figures?token={TOKEN}", method="GET")).status == 401
        assert (await ask(gateway.url, "/admin/figures", method="GET", headers=KNOWN)).status == 200


async def test_the_files_of_the_page_hold_nothing_of_this_gateway() -> None:
    async with rolled(1, auto=False) as fleet:
        label = fleet.publish(1)
        for path, answer in (await _static(fleet.gateway)).items():
            assert answer.status == 200, path
            for secret in (ADMIN, label, MODEL, fleet.fakes[0].url, str(fleet.folder)):
                if secret != MODEL or path == "/admin":
                    assert secret.encode() not in answer.body, (path, secret)


async def test_no_foreign_script_runs_and_no_frame_holds_the_page() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": TOKEN}) as gateway:
        for path, answer in (await _static(gateway)).items():
            policy = answer.header("content-security-policy") or ""
            assert "default-src 'none'" in policy and "script-src 'self';" in policy, path
            assert "frame-ancestors 'none'" in policy, path
            assert answer.header("x-content-type-options") == "nosniff", path
            assert answer.header("set-cookie") is None, path


async def test_the_page_asks_for_its_own_files_only() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": TOKEN}) as gateway:
        page = (await ask(gateway.url, "/admin", method="GET")).body.decode()
        asked = re.findall(r'(?:src|href)="([^"]*)"', page)
        assert len(asked) == 5
        for address in asked:
            answer = await ask(gateway.url, f"/{address}", method="GET")
            assert answer.status == 200, address
        assert "<script>" not in page and "onclick" not in page


async def test_a_form_of_another_site_moves_no_rollout() -> None:
    """Without a header that a form cannot set, nothing is done, whoever sends it."""
    async with rolled(1, auto=False) as fleet:
        fleet.publish(1)
        headers = [("origin", "https://evil.example"), ("content-type", "application/x-www-form-urlencoded")]
        for path in (
            "/admin/rollouts",
            "/admin/rollouts/current/promote",
            "/admin/rollouts/current/rollback",
        ):
            answer = await ask(fleet.gateway.url, path, f"token={ADMIN}".encode(), headers=headers)
            assert answer.status == 401, path
            assert answer.header("access-control-allow-origin") is None
        assert fleet.record is None


async def test_figures_are_what_was_counted() -> None:
    async with fakes(2) as engines, gateway_to(*engines, admin={"token": TOKEN}) as gateway:
        before = msgspec.json.decode((await ask(gateway.url, "/admin/figures", headers=KNOWN)).body)
        for number in range(3):
            await ask(gateway.url, "/predict", {"prompt": f"Hello {number}"})
        after = msgspec.json.decode((await ask(gateway.url, "/admin/figures", headers=KNOWN)).body)
        assert after["totals"]["requests"]["ok"] - before["totals"]["requests"]["ok"] == 3
        assert after["at"] > before["at"]
        assert [member["state"] for member in after["status"]["models"][0]["members"]] == ["ready", "ready"]


async def test_checkpoints_tell_their_lineage_metrics_and_verdicts() -> None:
    async with rolled(1, auto=False) as fleet:
        fleet.publish(1, metrics={"reward": 0.4})
        fleet.publish(2)
        await fleet.admin("POST", "/admin/rollouts", {"version": "1"})
        await fleet.serves(1)
        seen = msgspec.json.decode((await fleet.admin("GET", "/admin/checkpoints")).body)
        first, second = seen["checkpoints"]
        assert (first["parent"], first["metrics"], first["aliases"]) == (None, {"reward": 0.4}, ["serving"])
        assert [verdict["stage"] for verdict in first["verdicts"]] == ["promoted"]
        assert (second["parent"], second["verdicts"], second["aliases"]) == (1, [], ["candidate"])


async def test_the_past_of_rollouts_is_told_as_far_as_one_wants_it() -> None:
    async with rolled(1, auto=False) as fleet:
        fleet.publish(1)
        await fleet.admin("POST", "/admin/rollouts", {})
        await fleet.serves(1)
        for past, told in ((0, 0), (1, 1)):
            answer = await fleet.admin("GET", f"/admin/rollouts?past={past}")
            assert len(msgspec.json.decode(answer.body)["history"]) == told
        assert (await fleet.admin("GET", "/admin/rollouts?past=-1")).status == 400
