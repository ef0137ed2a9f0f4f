"""A server that answers what a probe asks as vLLM does, from a table of log-probabilities.

Real HTTP on a real socket. Behaviours are switches: no `prompt_logprobs` (only `echo`), no
`/tokenize`, no field that OpenAI has not, a prefix cache that remembers what it answered first.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

VOCABULARY = 12


def distribution(before: Sequence[int], seed: int = 0) -> list[float]:
    """Log-probabilities of the next token: they depend on the last two tokens and the seed."""
    source = random.Random(f"{seed}/{tuple(before[-2:])}")
    logits = [source.uniform(-3, 3) for _ in range(VOCABULARY)]
    total = math.log(math.fsum(map(math.exp, logits)))
    return [logit - total for logit in logits]


def likeliest(values: Sequence[float], count: int) -> list[int]:
    """Token ids by falling log-probability."""
    return sorted(range(len(values)), key=lambda token: -values[token])[:count]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeEngine

    def do_GET(self) -> None:
        model = {"id": "fake", "max_model_len": 600}
        self._answer(200, {"data": [model]} if self.server.serves_models else {"data": []})

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize" and self.server.tokenizes:
            text = body.get("prompt") or body["messages"][0]["content"]
            self._answer(200, {"tokens": [ord(letter) % VOCABULARY for letter in text]})
        elif self.path == "/v1/completions":
            if self.server.strict and {"cache_salt", "prompt_logprobs", "ignore_eos"} & body.keys():
                self._answer(400, {"error": {"message": "unknown field"}})
            elif self.server.fails:
                self._answer(500, {"error": {"message": "broken"}})
            else:
                self._answer(200, {"choices": [self.server.complete(body)]})
        else:
            self._answer(404, {"error": {"message": "not found"}})

    def _answer(self, status: int, value: object) -> None:
        body = msgspec.json.encode(value)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class FakeEngine(ThreadingHTTPServer):
    """Its weights are `seed`; set it to another to swap them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seed = 0
        self.only_echo = self.fails = self.remembers = self.strict = False
        self.tokenizes = self.serves_models = True
        self._cache: dict[tuple[object, ...], int] = {}

    def complete(self, body: dict[str, Any]) -> dict[str, object]:
        ids: list[int] = body["prompt"]
        if "prompt_logprobs" in body:
            return {} if self.only_echo else {"prompt_logprobs": [None, *self._prompt(ids, self.seed)]}
        if body.get("echo"):
            numbers = [distribution(ids[:at], self.seed)[ids[at]] for at in range(1, len(ids))]
            return {"logprobs": {"tokens": ["x"] * len(ids), "token_logprobs": [None, *numbers]}}
        seed = self.seed
        if self.remembers:
            seed = self._cache.setdefault((body.get("cache_salt"), *ids[:64]), self.seed)
        return {"logprobs": self._generated(ids, body["max_tokens"], seed)}

    def _prompt(self, ids: list[int], seed: int) -> list[dict[str, object]]:
        places = []
        for at in range(1, len(ids)):
            values = distribution(ids[:at], seed)
            shown = {*likeliest(values, 5), ids[at]}
            places.append({str(token): {"logprob": values[token], "rank": 1} for token in shown})
        return places

    def _generated(self, ids: list[int], count: int, seed: int) -> dict[str, object]:
        so_far = list(ids)
        tokens, numbers, tops = [], [], []
        for _ in range(count):
            values = distribution(so_far, seed)
            best = likeliest(values, 5)
            name = "word-{}" if self.strict else "token_id:{}"
            tokens.append(name.format(best[0]))
            numbers.append(values[best[0]])
            tops.append({name.format(token): values[token] for token in best})
            so_far.append(best[0])
        return {"tokens": tokens, "token_logprobs": numbers, "top_logprobs": tops}


@contextmanager
def running_engine() -> Iterator[FakeEngine]:
    """A running fake."""
    server = FakeEngine()
    thread = threading.Thread(target=server.serve_forever, name="engine")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
