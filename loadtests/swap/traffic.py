"""Load whose answers can be judged: each names its weights, and what it says shows whether it was those.

A handful of prompts, greedy, with the log-probability of the first token. All answers of one version to one
prompt must agree: an answer between two versions, or of another one than it names, stands apart.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

import msgspec

from loadtests.samples import Outcome
from loadtests.stats import percentile
from loadtests.wire import Client, Exchange, Target, post

PROMPTS = tuple(f"{word} and then the {word} said:" for word in ("river", "engine", "policy", "garden"))
TOLERANCE = 0.05
"""Of a log-probability: batches of other sizes round otherwise; other weights are much farther away."""
TIMEOUT_S = 60.0
REFUSED = (429, 503)


@dataclass(frozen=True, slots=True)
class Answer:
    prompt: int
    sent_at: float
    ended_at: float
    outcome: Outcome
    version: str
    logprob: float | None
    said: str

    @property
    def latency_s(self) -> float:
        return self.ended_at - self.sent_at


@dataclass
class Judged:
    """What all answers come to."""

    answers: int = 0
    failed: int = 0
    stale: int = 0
    mixed: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """The first of what is wrong."""


class Traffic:
    """Open-loop load on a thread of its own, from `start` to `stop`."""

    def __init__(self, target: Target, rate: float) -> None:
        self.rate = rate
        self.answers: list[Answer] = []
        self._target = target
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send nothing new, and wait for what is under way."""
        self._ending.set()
        self._thread.join(TIMEOUT_S + 10)

    def between(self, start: float, end: float) -> list[Answer]:
        """Those that were sent then."""
        return [answer for answer in tuple(self.answers) if start <= answer.sent_at < end]

    def _run(self) -> None:
        asyncio.run(self._drive())

    async def _drive(self) -> None:
        client = Client(self._target)
        wires = [_wire(prompt) for prompt in PROMPTS]
        due = monotonic()
        try:
            for index in itertools.cycle(range(len(PROMPTS))):
                if self._ending.is_set():
                    break
                client.send(
                    wires[index], _recorder(index, self.answers.append), timeout_s=TIMEOUT_S, keep=True
                )
                due += 1 / self.rate
                await asyncio.sleep(max(0.0, due - monotonic()))
            deadline = monotonic() + TIMEOUT_S
            while client.open and monotonic() < deadline:  # noqa: ASYNC110 (counted by many requests)
                await asyncio.sleep(0.05)
        finally:
            client.close()


async def capacity(target: Target, clients: int, seconds: float) -> float:
    """Answers a second that so many clients get, each asking again when it has its answer."""
    client = Client(target, limit=clients)
    found: list[Answer] = []
    wires = itertools.cycle([_wire(prompt) for prompt in PROMPTS])
    end = monotonic() + seconds

    def begin() -> None:
        def done(exchange: Exchange) -> None:
            if exchange.ended_at < end:
                found.append(_answer(0, exchange))
                client.loop.call_soon(begin)

        client.begin(next(wires), done, timeout_s=TIMEOUT_S, keep=True)

    try:
        for _ in range(clients):
            begin()
        await asyncio.sleep(seconds)
    finally:
        client.close()
    return sum(answer.outcome is Outcome.OK for answer in found) / seconds


def judge(answers: Sequence[Answer], served: Sequence[tuple[float, str]]) -> Judged:
    """`served`: from when on (monotonic) which version was served everywhere."""
    found = Judged(answers=len(answers))
    groups: dict[tuple[str, int], list[float]] = defaultdict(list)
    for answer in answers:
        if answer.logprob is not None:
            groups[answer.version, answer.prompt].append(answer.logprob)
    usual = {key: median(values) for key, values in groups.items()}
    for answer in answers:
        found.versions[answer.version] = found.versions.get(answer.version, 0) + 1
        if answer.outcome is not Outcome.OK or answer.logprob is None:
            found.failed += 1
            found.told.append(f"failed: {answer.outcome} {answer.said[:200]}")
        elif abs(answer.logprob - usual[answer.version, answer.prompt]) > TOLERANCE:
            found.mixed += 1
            expected = usual[answer.version, answer.prompt]
            found.told.append(f"mixed: {answer.version} says {answer.logprob:.4f}, not {expected:.4f}")
        if _is_stale(answer, served):
            found.stale += 1
            found.told.append(f"stale: {answer.version}")
    del found.told[20:]
    return found


def _is_stale(answer: Answer, served: Sequence[tuple[float, str]]) -> bool:
    """It was asked when another version was served everywhere, and carries an older one."""
    if answer.outcome is not Outcome.OK:
        return False
    place = next((i for i in range(len(served) - 1, -1, -1) if served[i][0] <= answer.sent_at), None)
    if place is None:
        return False
    older = {version for _, version in served[:place]} - {served[place][1]}
    return answer.version in older or answer.version.startswith("base-")


def p99(answers: Sequence[Answer]) -> float:
    """Seconds."""
    return percentile(sorted(a.latency_s for a in answers if a.outcome is Outcome.OK), 0.99)


def _wire(prompt: str) -> bytes:
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 1}
    return post("/v1/completions", msgspec.json.encode(body))


def _recorder(prompt: int, note: Callable[[Answer], None]) -> Callable[[Exchange], None]:
    def done(exchange: Exchange) -> None:
        note(_answer(prompt, exchange))

    return done


def _answer(prompt: int, exchange: Exchange) -> Answer:
    outcome = Outcome.OK
    if exchange.fault == "timeout":
        outcome = Outcome.TIMEOUT
    elif exchange.fault or exchange.status != 200:
        outcome = Outcome.REFUSED if exchange.status in REFUSED and not exchange.fault else Outcome.ERROR
    body = bytes(exchange.body or b"")
    logprob = None
    if outcome is Outcome.OK:
        try:
            logprob = float(msgspec.json.decode(body)["choices"][0]["logprobs"]["token_logprobs"][0])
        except (msgspec.DecodeError, KeyError, IndexError, TypeError):
            outcome = Outcome.ERROR
    version = exchange.headers.get(b"x-model-version", b"").decode("latin-1")
    said = exchange.fault or body.decode("utf-8", "replace")
    return Answer(prompt, exchange.sent_at, exchange.ended_at, outcome, version, logprob, said)
