"""What clients reach through nginx, what they do not, and how nginx refuses."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx2
import pytest

from backends.fake import Behaviour
from tests.deploy.nginx.certificate import self_signed
from tests.drivers.many import many
from tests.drivers.nginx import edge, entries
from tests.drivers.process import free_port
from tests.drivers.raw import Peer, Response, ask, chunked_request, connected, request
from tests.drivers.waiting import eventually
from tests.faults.seen import asked, last
from tests.gateways import FORMS, fakes, gateway_to

MIB = 1024 * 1024
ADMIN = {"admin": {"token": "operators-only-token"}}
BEARER = [("authorization", "Bearer operators-only-token")]

HIDDEN = (
    "/admin/cache",
    "//admin/cache",
    "/./admin/cache",
    "/%61dmin/cache",
    "/v1/../admin/cache",
    "/v1/%2e%2e/admin/cache",
    "/v1/x%2f..%2f..%2fadmin/cache",
    "/v1/..;/admin/cache",
    "/predict/../admin/cache",
    "/admin/cache?x=/v1/",
    "/v1/models/../../admin/cache",
    "/metrics",
    "/%6detrics",
    "/status",
    "/version",
    "/docs",
    "/openapi.json",
    "/",
)


def code(response: Response) -> object:
    return response.json()["error"]["code"]


async def test_every_form_of_request_is_answered() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for path, body in FORMS.values():
            assert (await ask(front.url, path, body)).status == 200
        assert (await ask(front.url, "/v1/models")).status == 200
        for path in ("/healthz", "/health", "/readyz", "/edge/healthz"):
            assert (await ask(front.url, path)).status == 200
            assert (await ask(front.url, path, method="HEAD")).status == 200


async def test_what_is_for_operators_cannot_be_reached_however_it_is_spelt() -> None:
    async with (
        fakes(1) as (fake,),
        gateway_to(fake, **ADMIN) as gateway,
        edge([gateway.url]) as front,
    ):
        assert (await ask(gateway.url, "/admin/cache", headers=BEARER)).status == 200
        for path in HIDDEN:
            response = await ask(front.url, path, headers=BEARER)
            assert (response.status, code(response)) == (404, "not_found"), path
            assert (await ask(front.url, path, {}, headers=BEARER)).status in (400, 404), path


async def test_a_body_that_is_too_large_is_refused_in_the_usual_shape() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for asked_for in (
            request("/predict", b"", method="POST", length=20 * MIB + 1),
            chunked_request("/predict", [b"x" * MIB] * 21),
        ):
            async with connected(front.url) as peer:
                sending = asyncio.get_running_loop().create_task(_send(peer, asked_for), name="client")
                response = await peer.response()
                sending.cancel()
                assert (response.status, code(response)) == (413, "payload_too_large")
        whole = b'{"prompt":"x","max_tokens":1}'
        largest = whole + b" " * (20 * MIB - len(whole))
        assert (await ask(front.url, "/predict", largest)).status == 200
        assert len(asked(fake)) == 1


async def _send(peer: Peer, data: bytes) -> None:
    try:
        await peer.send(data)
    except ConnectionError:
        pass  # nginx need not read what it has refused


async def test_one_client_that_asks_too_often_is_told_so_and_the_others_are_served() -> None:
    async with (
        fakes(1) as (fake,),
        gateway_to(fake) as gateway,
        edge([gateway.url], {"EDGE_RATE": "1r/m"}) as front,
    ):

        async def greedy(number: int) -> Response:
            key = [("authorization", "Bearer greedy")]
            return await ask(front.url, "/v1/completions", {"prompt": str(number)}, headers=key)

        responses = (await many(230, greedy, at_a_time=16)).all()
        refused = [response for response in responses if response.status == 429]
        assert len(responses) - len(refused) in range(201, 204)
        for response in refused:
            assert code(response) == "rate_limit_exceeded"
            assert response.header("retry-after") == "1"
            assert response.header("content-type") == "application/json"
        other = [("authorization", "Bearer modest")]
        assert (await ask(front.url, "/predict", {"prompt": "x"}, headers=other)).status == 200
        assert (await ask(front.url, "/predict", {"prompt": "x"})).status == 200
        assert (await ask(front.url, "/readyz")).status == 200


async def test_without_any_gateway_the_answer_is_an_error_that_can_be_read() -> None:
    async with edge([f"http://127.0.0.1:{free_port()}"]) as front:
        response = await ask(front.url, "/predict", {"prompt": "x"})
        assert (response.status, code(response)) == (502, "gateway_unreachable")
        assert response.header("retry-after") == "1"


async def test_the_gateways_own_refusals_pass_as_they_are() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for body in (b"{", b'{"prompt": 1}'):
            direct = await ask(gateway.url, "/predict", body)
            through = await ask(front.url, "/predict", body)
            assert direct.status == through.status == 400
            assert direct.json() == through.json()
        assert (await ask(front.url, "/predict")).status == 405


async def test_nobody_can_forge_where_a_request_comes_from_and_its_id_goes_along() -> None:
    forged = [("x-forwarded-for", "10.9.9.9"), ("x-request-id", "mine-1"), ("x_request_id", "mine-2")]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        response = await ask(front.url, "/predict", {"prompt": "x"}, headers=forged)
        assert response.header("x-request-id") == "mine-1"
        assert "10.9.9.9" not in str(last(fake))
        silly = [("x-request-id", 'x"; DROP')]
        response = await ask(front.url, "/predict", {"prompt": "x"}, headers=silly)
        assert response.header("x-request-id") not in (None, 'x"; DROP')


async def test_only_a_trusted_balancer_says_who_the_client_is() -> None:
    forwarded = [("x-forwarded-for", "10.9.9.9, 203.0.113.5")]
    trusting = {"EDGE_TRUSTED_PROXY": "127.0.0.0/8"}
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url], trusting) as front:
        await ask(front.url, "/predict", {"prompt": "x"}, headers=forwarded)
        await eventually(lambda: entries(front))
        assert entries(front)[-1]["client"] == "203.0.113.5"


async def test_the_log_says_how_long_the_gateway_took_and_no_key() -> None:
    slow = Behaviour(delay_headers_s=0.2)
    async with fakes(1, slow) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        await ask(
            front.url, "/predict?key=sesame", {"prompt": "x"}, headers=[("authorization", "Bearer hush")]
        )
        await eventually(lambda: entries(front))
        entry = entries(front)[-1]
        assert entry["status"] == 200
        assert float(str(entry["gateway_seconds"])) >= 0.19
        assert str(entry["gateway"]) in gateway.url
        assert "hush" not in front.log
        assert "sesame" not in front.log


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_speaks_http_2_and_only_modern_versions(tmp_path: Path, version: ssl.TLSVersion) -> None:
    port = free_port()
    tls = self_signed(tmp_path)
    context = ssl.create_default_context(cafile=str(tls / "tls.crt"))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with (
        fakes(1) as (fake,),
        gateway_to(fake) as gateway,
        edge([gateway.url], {"EDGE_LISTEN_TLS": f"127.0.0.1:{port}"}, tls=tls),
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.transport.abort()
        async with httpx2.AsyncClient(verify=context, trust_env=False) as client:
            answer = await client.post(f"https://localhost:{port}/predict", json={"prompt": "x"})
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"] == "max-age=63072000"


async def test_tls_1_1_is_refused(tmp_path: Path) -> None:
    port = free_port()
    tls = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls / "tls.crt")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with edge(["http://127.0.0.1:9"], {"EDGE_LISTEN_TLS": f"127.0.0.1:{port}"}, tls=tls):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
