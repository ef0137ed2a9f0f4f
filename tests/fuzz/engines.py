"""Answers of engines, broken: what a client then gets is whole, or cut, or an error; never another's."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec

from tests.drivers.framing import FramingError
from tests.drivers.raw import connected, request
from tests.fuzz.drive import drive
from tests.fuzz.liar import NONCE, NONCES, Script, chunked, liar, plain
from tests.fuzz.mutate import mutated, pieces
from tests.fuzz.tally import Tally
from tests.gateways import gateway_to

HANG_S = 8.0
TIMEOUTS = {
    "first_byte_s": 0.4, "silence_s": 0.4, "total_s": 1.0, "stream_total_s": 2.0, "heartbeat_s": 0.3,
    "connect_s": 1.0,
}  # fmt: skip

CHOICE = b'{"index":0,"text":" nonce-XXXXXX","logprobs":null,"finish_reason":"length"}'
USAGE = b'"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}'
WHOLE = (
    b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":['
    + CHOICE
    + b"],"
    + USAGE
    + b"}"
)
CHAT = WHOLE.replace(b"text_completion", b"chat.completion").replace(
    b'"text":" nonce-XXXXXX"', b'"message":{"role":"assistant","content":"nonce-XXXXXX"}'
)
EVENT = b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[%b]}\n\n'
EVENTS = [EVENT % CHOICE.replace(b'"length"', b"null"), EVENT % CHOICE, b"data: [DONE]\n\n"]
ANSWERS = (
    plain(WHOLE),
    plain(CHAT),
    plain(b'{"error":{"message":"nonce-XXXXXX","type":"x","param":null,"code":400}}', b"400 Bad Request"),
    plain(NONCE + b" busy", b"503 Service Unavailable", b"text/plain"),
    chunked([WHOLE], b"application/json"),
    chunked(EVENTS),
    chunked([b"".join(EVENTS)]),
    plain(b"".join(EVENTS), kind=b"text/event-stream"),
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" + WHOLE,
    b"HTTP/1.1 100 Continue\r\n\r\n" + plain(WHOLE),
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + plain(WHOLE),
    plain(WHOLE) + plain(WHOLE),
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
)
ROUTES = (
    ("/predict", {"prompt": "nonce-%06d", "max_tokens": 4, "temperature": 1}),
    ("/predict", {"prompt": "nonce-%06d", "max_tokens": 4, "stream": True}),
    ("/predict", {"prompt": ["nonce-%06d", "b"], "max_tokens": 4}),
    ("/v1/completions", {"prompt": "nonce-%06d", "max_tokens": 4}),
    ("/v1/completions", {"prompt": "nonce-%06d", "max_tokens": 4, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "nonce-%06d"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "nonce-%06d"}], "stream": True}),
)


def script(number: int, seed: int, nonce: bytes) -> Script:
    """The broken answer of that number: the same for the same seed."""
    random = Random(f"{seed}/{number}")
    answer = ANSWERS[random.randrange(len(ANSWERS))]
    broken = mutated(answer, random, ANSWERS) if random.random() < 0.9 else answer
    return Script(tuple(pieces(broken.replace(NONCE, nonce), random)), random.random() < 0.5)


async def fuzz_engines(count: int, seed: int) -> Tally:
    """So many broken answers, through every hot route."""
    tally = Tally()

    def script_for(nonce: bytes) -> Script:
        return script(int(nonce.removeprefix(b"nonce-")), seed, nonce)

    async with (
        liar(script_for) as first,
        liar(script_for) as second,
        gateway_to(
            first,
            second,
            rests=False,
            timeouts=TIMEOUTS,
            health={"breaker_open_s": 0.05, "breaker_max_s": 0.1, "traffic_failures": 1000},
            logging={"level": "error"},
        ) as gateway,
    ):
        await drive(
            gateway, count, tally, lambda number: _ask(gateway.url, number, seed, tally), what=f"seed {seed}"
        )
    return tally


async def _ask(url: str, number: int, seed: int, tally: Tally) -> None:
    what = f"answer {number} of seed {seed}"
    path, body = ROUTES[number % len(ROUTES)]
    nonce = b"nonce-%06d" % number
    async with connected(url) as peer:
        await peer.send(request(path, _filled(body, number)))
        try:
            async with asyncio.timeout(HANG_S):
                response = await peer.response()
            tally.answered(response.status, what)
        except TimeoutError:
            tally.hang(what)
        except FramingError as error:
            if not peer.reader.at_eof():
                tally.crash(f"{what}: illegal bytes to the client: {error}")
        except ConnectionError:
            pass  # cut off, which is how a broken body ends
        strangers = {found for found in NONCES.findall(bytes(peer.received)) if found != nonce}
        if strangers:
            tally.crash(f"{what}: got an answer that belongs to {strangers}")


def _filled(body: dict[str, object], number: int) -> bytes:
    return msgspec.json.encode(body).replace(b"nonce-%06d", b"nonce-%06d" % number)
