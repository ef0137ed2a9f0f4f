"""Requests of clients, broken: refused or answered in order, within the time a client has, and all let go."""

from __future__ import annotations

import asyncio
import re
from random import Random

from tests.drivers.raw import chunked_request, connected, request
from tests.fuzz.drive import drive
from tests.fuzz.mutate import mutated, pieces
from tests.fuzz.tally import Tally
from tests.gateways import fakes, gateway_to

HANG_S = 8.0
TOKEN = "fuzz-admin-token"

_BODY = {"prompt": "Hello", "max_tokens": 2}
_CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
REQUESTS = (
    request("/predict", _BODY),
    request("/predict", {**_BODY, "stream": True, "stop": ["x"], "temperature": 0.5, "seed": 3}),
    request("/predict", {"prompt": ["a", "b"], "max_tokens": 2}),
    request("/v1/completions", {**_BODY, "logprobs": 2, "n": 2, "echo": True}),
    request("/v1/completions", {**_BODY, "stream": True, "stream_options": {"include_usage": True}}),
    request("/v1/chat/completions", _CHAT),
    request("/v1/chat/completions", {**_CHAT, "stream": True, "tools": [{"type": "function"}]}),
    chunked_request("/predict", [b'{"prompt": "He', b'llo", "max_tokens": 2}']),
    request(
        "/predict",
        _BODY,
        headers=[("x-request-timeout", "1"), ("x-request-id", "a"), ("cache-control", "no-cache")],
    ),
    request(
        "/predict",
        _BODY,
        headers=[("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("authorization", "Bearer k")],
    ),
    request(
        "/predict",
        _BODY,
        headers=[("x-model-version", "v1"), ("x-model-version-min", "2"), ("expect", "100-continue")],
    ),
    request("/v1/models"),
    request("/healthz", method="HEAD"),
    request("/metrics"),
    request("/readyz"),
    request("/status"),
    request("/admin/cache", headers=[("authorization", f"Bearer {TOKEN}")]),
    request("/admin/cache/clear", b"", headers=[("authorization", f"Bearer {TOKEN}")]),
    request(
        "/predict",
        method="OPTIONS",
        headers=[("origin", "https://a"), ("access-control-request-method", "POST")],
    ),
    request("/predict", _BODY) + request("/v1/models") + request("/predict", _BODY),
)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


async def fuzz_clients(count: int, seed: int) -> Tally:
    """So many broken requests to a gateway whose engines are well."""
    tally = Tally()
    async with (
        fakes(2) as (a, b),
        gateway_to(
            a,
            b,
            rests=False,
            server={"header_timeout_s": 0.5, "keep_alive_s": 1, "max_body_bytes": 1024 * 1024},
            timeouts={"total_s": 3, "stream_total_s": 3, "first_byte_s": 2, "silence_s": 2, "heartbeat_s": 1},
            admin={"token": TOKEN},
            logging={"level": "error"},
        ) as gateway,
    ):
        await drive(
            gateway, count, tally, lambda number: _send(gateway.url, number, seed, tally), what=f"seed {seed}"
        )
    return tally


async def _send(url: str, number: int, seed: int, tally: Tally) -> None:
    random = Random(f"{seed}/{number}")
    what = f"request {number} of seed {seed}"
    asked = mutated(REQUESTS[random.randrange(len(REQUESTS))], random, REQUESTS)
    async with connected(url) as peer:
        try:
            for piece in pieces(asked, random):
                await peer.send(piece)
            if random.random() < 0.7:
                peer.writer.write_eof()
            async with asyncio.timeout(HANG_S):
                while await peer.receive():
                    pass
        except TimeoutError:
            tally.hang(f"{what}: {asked[:200]!r}")
        except ConnectionError:
            pass  # thrown out, which is its right
        for status in _STATUS.findall(bytes(peer.received)):
            tally.answered(int(status), f"{what}: {asked[:300]!r}")
