"""Users of a model service for Locust: `locust -f loadtests/locustfile.py --host http://localhost:80`.

Callers of `/predict`, people who chat (each turn sends the conversation so far, behind a system prompt that
many share), and readers of streams. Streams report two more entries: `TTFT <route>`, from sending to the
first token, and `inter-token <route>`, the mean time between tokens of one stream; the stream's own entry is
the time to its end. Locust is a closed loop: for rates, use `python -m loadtests.drive`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from locust import FastHttpUser, between, events, task
from locust.env import Environment
from locust.event import EventHook

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # Locust puts only this file's folder there

from loadtests.tokens import TokenTimes
from loadtests.workload import text

SYSTEM_PROMPTS = 8
SYSTEM_TOKENS = 200
ANSWER_TOKENS = 32
REPEATED = 0.2
"""Share of the questions that someone else asks too, word for word."""
COMMON_QUESTIONS = 50
LONGEST_CHAT = 5
"""Turns after which a person begins anew."""

_random = Random(1)
SHARED = [text(SYSTEM_TOKENS, _random) for _ in range(SYSTEM_PROMPTS)]
COMMON = [text(30, _random) for _ in range(COMMON_QUESTIONS)]


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: Any) -> None:
    parser.add_argument("--model-name", default="", help="model to ask for; default: the server's own")


class ModelUser(FastHttpUser):
    """What all users have in common."""

    abstract = True
    wait_time = between(0.2, 1.0)
    connection_timeout = 10.0
    network_timeout = 120.0

    def on_start(self) -> None:
        self.random = Random()
        self.system = self.random.choice(SHARED)

    def question(self) -> str:
        if self.random.random() < REPEATED:
            return self.random.choice(COMMON)
        return text(30, self.random)

    def body(self, **fields: Any) -> dict[str, Any]:
        model = self.environment.parsed_options.model_name if self.environment.parsed_options else ""
        named = {"model": model} if model else {}
        return {"max_tokens": ANSWER_TOKENS, "temperature": 0, **named, **fields}

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """A whole answer, or None."""
        with self.client.post(path, json=body, name=path, catch_response=True) as response:
            if response.status_code in (429, 503):
                response.failure(f"refused with {response.status_code}")
                return None
            if response.status_code != 200:
                response.failure(f"status {response.status_code}: {(response.text or '')[:100]}")
                return None
            answer: dict[str, Any] = response.json()
            return answer

    def read(self, path: str, body: dict[str, Any]) -> None:
        """A stream to its end; reports its first token and the time between tokens."""
        name = f"{path} stream"
        tokens = TokenTimes()
        start = time.perf_counter()
        with self.client.post(
            path, json={**body, "stream": True}, name=name, catch_response=True, stream=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return
            for line in _lines(response):
                tokens.feed(line, time.perf_counter())
            response.request_meta["response_time"] = (time.perf_counter() - start) * 1000
            if tokens.failed or not tokens.done:
                response.failure("the stream did not end whole")
        self._report(f"TTFT {path}", tokens.first_at, start)
        if tokens.first_at is not None and tokens.gaps:
            self._report(f"inter-token {path}", tokens.last_at, tokens.first_at, len(tokens.gaps))

    def _report(self, name: str, end: float | None, start: float, parts: int = 1) -> None:
        if end is not None:
            fire(self.environment.events.request, name, (end - start) * 1000 / parts)


def fire(hook: EventHook, name: str, milliseconds: float) -> None:
    """An entry of Locust's table that is no request of its own."""
    hook.fire(  # type: ignore[no-untyped-call]
        request_type="STREAM",
        name=name,
        response_time=milliseconds,
        response_length=0,
        exception=None,
        context={},
    )


def _lines(response: Any) -> Iterator[bytes]:
    """Lines as they come. The public readers wait for a whole block, which hides when tokens came."""
    while line := response._response.readline(b"\n"):
        yield line


class Predictor(ModelUser):
    """A service that calls `/predict`, sometimes with several prompts at a time."""

    weight = 5

    @task(8)
    def one(self) -> None:
        self.ask("/predict", self.body(prompt=self.question()))

    @task(2)
    def several(self) -> None:
        prompts = [self.question() for _ in range(self.random.randint(2, 6))]
        self.ask("/predict", self.body(prompt=prompts))


class Chatter(ModelUser):
    """A person who chats: the conversation grows, and its beginning is sent again each time."""

    weight = 3
    wait_time = between(0.5, 3.0)

    def on_start(self) -> None:
        super().on_start()
        self.said: list[dict[str, str]] = []

    @task
    def turn(self) -> None:
        if len(self.said) >= 2 * LONGEST_CHAT:
            self.said = []
        self.said.append({"role": "user", "content": self.question()})
        messages = [{"role": "system", "content": self.system}, *self.said]
        answer = self.ask("/v1/chat/completions", self.body(messages=messages))
        if answer is None:
            self.said.pop()
        else:
            self.said.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})


class Reader(ModelUser):
    """Somebody who watches the answer appear."""

    weight = 3

    @task(2)
    def predict(self) -> None:
        self.read("/predict", self.body(prompt=f"{self.system}\n{self.question()}"))

    @task(1)
    def chat(self) -> None:
        messages = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.question()},
        ]
        self.read("/v1/chat/completions", self.body(messages=messages))


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _judge(environment: Environment, **_: Any) -> None:
    """Exit code 1 where more than one request in a hundred failed."""
    total = environment.stats.total
    if environment.process_exit_code is None and total.num_requests and total.fail_ratio > 0.01:
        environment.process_exit_code = 1
