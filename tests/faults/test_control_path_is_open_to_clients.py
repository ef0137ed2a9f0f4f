"""A client reaches what only operators may: the engine is paused, swapped or drained by a stranger."""

from __future__ import annotations

import pytest

from backends.contract import ELSEWHERE_HEADER, GUARD_PATH, TOKEN_HEADER, VERSION_HEADER
from backends.fake import Behaviour
from backends.fake.control import METHODS
from tests.drivers.raw import ask
from tests.faults.seen import asked, last
from tests.gateways import FORMS, fakes, gateway_to

CONTROL = [
    *METHODS,
    "/pause",
    "/resume",
    "/sleep",
    "/wake_up",
    "/collective_rpc",
    "/update_weights",
    "/init_weight_transfer_engine",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/load_lora_adapter",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/server_info",
    "/start_profile",
    "/scale_elastic_ep",
    "/is_sleeping",
    "/invocations",
    "/inference/v1/generate",
    "/fake/die",
    GUARD_PATH,
    "/changeover/",
    "/admin",
    "/admin/rollout",
    "/admin/cache",
    "/admin/%2e%2e/pause",
]


def _spellings(path: str) -> list[str]:
    name = path.lstrip("/")
    return [
        path,
        f"{path}/",
        f"/{path}",
        f"//{name}",
        f"/%2f{name}",
        f"/%{ord(name[0]):02x}{name[1:]}",
        f"/./{name}",
        f"/v1/../{name}",
        f"/v1/completions/../../{name}",
        f"/v1/completions/..%2f..%2f{name}",
        f"/v1/completions%2f..%2f..%2f{name}",
        f"/v1/completions/..;/..;/{name}",
        f"/v1/completions\\..\\..\\{name}",
        f"/v1/completions/%2e%2e/%2e%2e/{name}",
        f"/v1/completions#{path}",
        f"{path}?mode=abort",
        f"{path}.json",
        path.upper(),
        f"http://127.0.0.1{path}",
        f"http://127.0.0.1//{name}",
    ]


@pytest.mark.fault("X1")
async def test_nothing_of_the_engines_control_can_be_reached_however_it_is_spelt() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        fake.stats.reset()
        for path in dict.fromkeys(CONTROL):
            for spelling in _spellings(path):
                for method, body in (("GET", None), ("POST", b"{}"), ("PUT", b"{}"), ("DELETE", None)):
                    response = await ask(gateway.url, spelling, body, method=method)
                    assert response.status in (400, 401, 403, 404, 405), (method, spelling)
                    assert response.json()["error"]["message"]
        assert not asked(fake), [request.path for request in asked(fake)]
        assert not fake.dead.is_set()


@pytest.mark.fault("X1")
async def test_a_hot_route_in_an_odd_spelling_is_not_found_and_reaches_no_engine() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            name = path.lstrip("/")
            for odd in (
                f"/{path}",
                f"{path}/",
                f"/./{name}",
                f"/x/../{name}",
                f"/%{ord(name[0]):02x}{name[1:]}",
                f"{path}%20",
                path.upper(),
                f"{path}%00",
                f"{path};x=1",
            ):
                response = await ask(gateway.url, odd, body)
                assert response.status in (400, 404), odd
                assert response.json()["error"]["type"]
        assert not asked(fake)


@pytest.mark.fault("X1")
async def test_forged_marks_reach_no_engine_and_mean_nothing() -> None:
    forged = [
        (TOKEN_HEADER, "guess"),
        (ELSEWHERE_HEADER, "draining"),
        ("x-changeover-namespace", "forged"),
        ("x-changeover-version", "forged-v9"),
        ("X-Changeover-Anything", "forged"),
        ("authorization", "Bearer stolen"),
    ]
    async with fakes(1, Behaviour(version="v1")) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body, headers=forged)
            assert response.status == 200
            assert response.header(VERSION_HEADER) == "v1"
            sent = [(name.decode().lower(), value.decode()) for name, value in last(fake).headers]
            assert not [name for name, value in sent if name.startswith("x-changeover") or "forged" in value]
            assert not [name for name, _ in sent if name in (VERSION_HEADER, "authorization")]
            # The version's header is a wish when a client sends it: one that nobody serves is answered here.
            wished = await ask(gateway.url, path, body, headers=[(VERSION_HEADER.upper(), "forged-v9")])
            assert (wished.status, wished.header(VERSION_HEADER)) == (404, None)
        assert len(asked(fake)) == len(FORMS)
        assert gateway.members[0].version == "v1"
        assert gateway.members[0].failures == 0
        assert gateway.fleet.ready


@pytest.mark.fault("X1")
async def test_marks_of_an_engine_that_are_not_the_gateways_do_not_reach_clients() -> None:
    headers = {ELSEWHERE_HEADER: "draining", "x-cache": "hit", "x-request-id": "forged", "server": "vllm"}
    async with fakes(1, Behaviour(headers=headers)) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body, headers=[("x-request-id", "mine")])
            assert response.status == 200
            assert response.header(ELSEWHERE_HEADER) is None
            assert response.header("x-request-id") == "mine"
            assert response.header("server") is None
            assert response.header("x-cache") in ("miss", "bypass")


@pytest.mark.fault("X1")
async def test_a_request_id_that_could_break_a_log_is_replaced() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for odd in ("x" * 129, "a b", "a\tb", "é", ""):
            response = await ask(gateway.url, "/predict", {"prompt": "x"}, headers=[("x-request-id", odd)])
            given = response.header("x-request-id")
            assert given
            assert given != odd
            assert last(fake).header("x-request-id") == given


@pytest.mark.fault("X1")
async def test_admin_paths_need_their_token() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, admin={"token": "operators-only"}) as gateway:
        wrong: tuple[list[tuple[str, str]], ...] = (
            [],
            [("authorization", "Bearer wrong")],
            [("authorization", "Basic b3BlcmF0b3Jz")],
        )
        for path in ("/admin/cache", "/admin/cache/clear", "/admin/anything"):
            for headers in wrong:
                for method in ("GET", "POST", "DELETE"):
                    response = await ask(gateway.url, path, b"{}", method=method, headers=headers)
                    assert response.status in (401, 403, 404, 405), path
                    assert response.json()["error"]["message"]
