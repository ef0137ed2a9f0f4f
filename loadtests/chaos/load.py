"""The load of a chaos run: computed, kept and streamed answers, each of which can be judged.

As clients behind a proxy do, a request whose connection was reset before any byte of an answer is sent once
more, for a worker that is killed takes its connections along; how often that was is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import dataclass
from time import monotonic

import msgspec

from loadtests.samples import Outcome
from loadtests.swap.traffic import PROMPTS, REFUSED, Answer
from loadtests.wire import Client, Exchange, Target, post

TIMEOUT_S = 150.0
"""More than a request may wait while all engines restart."""
AGAIN_S = 0.1
TOKENS = 4
STREAM_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of request."""

    name: str
    stream: bool = False
    kept: bool = False
    """It may be answered from the cache."""


KINDS = (Kind("computed"), Kind("kept", kept=True), Kind("computed"), Kind("streamed", stream=True))


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a request."""

    kind: str
    answer: Answer
    started: bool
    """Something of an answer had come."""
    again: bool
    """It was sent twice."""

    @property
    def ok(self) -> bool:
        return self.answer.outcome is Outcome.OK


class Load:
    """Open-loop load on a thread of its own, from `start` to `stop`."""

    def __init__(self, target: Target, rate: float) -> None:
        self.rate = rate
        self.ended: list[Ended] = []
        self.sent = 0
        self._target = target
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._drive()), name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send nothing new, and wait for what is under way."""
        self._ending.set()
        self._thread.join(TIMEOUT_S + 10)

    async def _drive(self) -> None:
        client = Client(self._target)
        mix = itertools.cycle(itertools.product(range(len(PROMPTS)), KINDS))
        due = monotonic()
        try:
            while not self._ending.is_set():
                prompt, kind = next(mix)
                self._send(client, prompt, kind, again=False)
                self.sent += 1
                due += 1 / self.rate
                await asyncio.sleep(max(0.0, due - monotonic()))
            deadline = monotonic() + TIMEOUT_S
            while len(self.ended) < self.sent and monotonic() < deadline:  # noqa: ASYNC110 (counted by many)
                await asyncio.sleep(0.05)
        finally:
            client.close()

    def _send(self, client: Client, prompt: int, kind: Kind, *, again: bool) -> None:
        def done(exchange: Exchange) -> None:
            reset = bool(exchange.fault) and exchange.fault != "timeout" and not exchange.status
            if reset and not again:
                client.loop.call_later(AGAIN_S, lambda: self._send(client, prompt, kind, again=True))
            else:
                self.ended.append(_ended(prompt, kind, exchange, again))

        client.send(wire(prompt, kind), done, stream=kind.stream, timeout_s=TIMEOUT_S, keep=True)


async def capacity(target: Target, clients: int, seconds: float) -> float:
    """Answers a second of this mix that so many clients get, each asking again when it has its answer."""
    client = Client(target, limit=clients)
    mix = itertools.cycle(itertools.product(range(len(PROMPTS)), KINDS))
    end = monotonic() + seconds
    count = 0

    def begin() -> None:
        prompt, kind = next(mix)
        client.begin(wire(prompt, kind), done, stream=kind.stream, timeout_s=TIMEOUT_S)

    def done(exchange: Exchange) -> None:
        nonlocal count
        if exchange.ended_at < end:
            count += exchange.whole and exchange.status == 200
            client.loop.call_soon(begin)

    try:
        for _ in range(clients):
            begin()
        await asyncio.sleep(seconds)
        return count / seconds
    finally:
        client.close()


def wire(prompt: int, kind: Kind) -> bytes:
    """A request: greedy, with the log-probability of each token."""
    body: dict[str, object] = {
        "prompt": PROMPTS[prompt],
        "max_tokens": TOKENS,
        "temperature": 0,
        "logprobs": 1,
    }
    if kind.stream:
        body |= {"stream": True, "max_tokens": STREAM_TOKENS, "ignore_eos": True}
    headers = () if kind.kept else (("cache-control", "no-store"),)
    return post("/v1/completions", msgspec.json.encode(body), headers)


def _ended(prompt: int, kind: Kind, exchange: Exchange, again: bool) -> Ended:
    body = bytes(exchange.body or b"")
    outcome = _outcome(exchange)
    logprob = _logprob(body, kind.stream) if outcome is Outcome.OK else None
    if outcome is Outcome.OK and logprob is None:
        outcome = Outcome.ERROR
    started = exchange.status == 200 and (
        exchange.tokens.first_at is not None if exchange.tokens is not None else bool(body)
    )
    version = exchange.headers.get(b"x-model-version", b"").decode("latin-1") or _named(body)
    said = exchange.fault or f"{exchange.status} {body.decode('utf-8', 'replace')[-300:]}"
    answer = Answer(prompt, exchange.sent_at, exchange.ended_at, outcome, version, logprob, said)
    return Ended(kind.name, answer, started, again)


def _outcome(exchange: Exchange) -> Outcome:
    if exchange.fault == "timeout":
        return Outcome.TIMEOUT
    if exchange.status in REFUSED and not exchange.fault:
        return Outcome.REFUSED
    return Outcome.OK if exchange.status == 200 and exchange.whole else Outcome.ERROR


def _named(body: bytes) -> str:
    """A stream whose head went out early says its version in a comment."""
    _, found, rest = body.partition(b": x-model-version: ")
    return rest.partition(b"\n")[0].decode("latin-1").strip() if found else ""


def _logprob(body: bytes, stream: bool) -> float | None:
    try:
        first = _first_event(body) if stream else body
        return float(msgspec.json.decode(first)["choices"][0]["logprobs"]["token_logprobs"][0])
    except (msgspec.DecodeError, KeyError, IndexError, TypeError):
        return None


def _first_event(body: bytes) -> bytes:
    return next((line[5:] for line in body.splitlines() if line.startswith(b"data:")), b"")
