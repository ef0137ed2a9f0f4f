"""One request as a user sends it, and all that came back, however it ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tests.abuse.steps import PROMPTS, TENANTS, Ask, Client
from tests.drivers.framing import Data, FramingError, Head, ResponseParser
from tests.drivers.raw import Peer, connected, request
from tests.drivers.waiting import paced

SLOW_BYTES, SLOW_S = 64, 0.004
LEAVES_AFTER_S = 0.03


class Ended(Enum):
    """How the exchange came to its end."""

    WHOLE = auto()
    """As an HTTP message should."""
    BROKEN = auto()
    LEFT = auto()
    """The client left first."""
    REFUSED = auto()
    """No connection, or one that ended before an answer began."""
    ILLEGAL = auto()
    """The bytes are no HTTP."""


@dataclass(slots=True)
class Seen:
    """What a client has seen of an answer."""

    ended: Ended = Ended.REFUSED
    head: Head | None = None
    content: bytearray = field(default_factory=bytearray)
    took_s: float = 0.0
    fault: str = ""

    @property
    def status(self) -> int:
        return self.head.status if self.head is not None else 0

    def header(self, name: str) -> str:
        """Empty where there is none."""
        return (self.head.header(name) if self.head is not None else None) or ""


def key_of(tenant: int) -> str:
    """A tenant's API key."""
    return f"key-of-{TENANTS[tenant]}"


def prompts_of(ask: Ask) -> list[str]:
    """The texts that are asked, in order."""
    prompt = PROMPTS[ask.prompt]
    return [prompt, f"{prompt}!"] if ask.form == "predict many" else [prompt]


def body_of(ask: Ask) -> tuple[str, dict[str, Any]]:
    """Path and body."""
    prompts = prompts_of(ask)
    body: dict[str, Any] = {"max_tokens": ask.tokens}
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    if ask.seed is not None:
        body["seed"] = ask.seed
    if ask.form.endswith("stream"):
        body["stream"] = True
    if ask.form.startswith("chat"):
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": prompts[0]}], **body}
    path = "/predict" if ask.form.startswith("predict") else "/v1/completions"
    return path, {"prompt": prompts if len(prompts) > 1 else prompts[0], **body}


def headers_of(ask: Ask, name: str) -> list[tuple[str, str]]:
    """`name`: the request's id."""
    least = "" if ask.least is None else str(ask.least)
    wishes = [("x-model-version", ask.wish), ("x-model-version-min", least), ("cache-control", ask.control)]
    return [
        ("authorization", f"Bearer {key_of(ask.tenant)}"),
        ("x-request-id", name),
        ("x-request-timeout", f"{ask.limit_s:g}"),
        *(wish for wish in wishes if wish[1]),
    ]


async def send(url: str, ask: Ask, name: str) -> Seen:
    """Send it and read what comes. Never raises for what the other side does."""
    seen = Seen()
    path, body = body_of(ask)
    began = time.monotonic()
    try:
        async with connected(url) as peer:
            await peer.send(request(path, body, headers=headers_of(ask, name)))
            await _meet(peer, ask.client, seen)
    except (ConnectionError, TimeoutError) as error:
        seen.fault = repr(error)
        seen.ended = Ended.BROKEN if seen.head is not None else Ended.REFUSED
    except FramingError as error:
        seen.fault = str(error)
        # Bytes that stop too early are a broken answer; others are none at all.
        seen.ended = Ended.BROKEN if seen.fault.startswith("closed") else Ended.ILLEGAL
    seen.took_s = time.monotonic() - began
    return seen


async def _meet(peer: Peer, client: Client, seen: Seen) -> None:
    match client:
        case Client.READS:
            await _read(peer, seen, 65_536, 0.0)
        case Client.SLOWLY:
            await _read(peer, seen, SLOW_BYTES, SLOW_S)
        case Client.LEAVES_AT_ONCE:
            seen.ended = Ended.LEFT
        case Client.LEAVES | Client.RESETS:
            await paced(LEAVES_AFTER_S)
            seen.ended = Ended.LEFT
            if client is Client.RESETS:
                peer.reset()


async def _read(peer: Peer, seen: Seen, size: int, gap_s: float) -> None:
    parser = ResponseParser()
    while not parser.ended:
        data = await peer.receive(size)
        if not data and seen.head is None:
            seen.fault = "closed without an answer"
            return
        _take(parser.feed(data) if data else parser.eof(), seen)
        if gap_s:
            await paced(gap_s)
    seen.ended = Ended.WHOLE


def _take(parts: Iterable[object], seen: Seen) -> None:
    for part in parts:
        match part:
            case Head() if part.status >= 200:
                seen.head = part
            case Data():
                seen.content += part.content
