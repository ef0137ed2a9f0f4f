"""A gateway for the trainer's eyes: answers rollouts from a script, and promotes whatever is published.

    with promoting(store_url, "policy") as gateway:
        ... train against gateway.url ...
    assert gateway.asked[0].least is None

It samples random printable ids and says that all were equally likely, so a trainer that compares finds a
large difference: for drift that is what a test wants. `fate` decides what becomes of a version.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from backends.versions import label_of
from checkpoints.manifest import Manifest
from checkpoints.rollouts import Rollout, Stage
from checkpoints.store.open import open_store
from checkpoints.store.store import Store

VOCABULARY = 259
POLL_S = 0.05


@dataclass
class Asked:
    """One request for samples."""

    count: int
    least: str | None
    sampling: dict[str, Any]


Fate = Callable[[Manifest], tuple[Stage, str]]
"""The end of a version's rollout, and the reason."""


def promoted(manifest: Manifest) -> tuple[Stage, str]:
    return Stage.PROMOTED, "every member serves it"


@dataclass
class Gateway:
    """What the server did. `answers` are played before honest ones: (status, label or None)."""

    url: str = ""
    label: str = "base-00000000"
    asked: list[Asked] = field(default_factory=list)
    promoted: list[int] = field(default_factory=list)
    answers: list[tuple[int, str | None]] = field(default_factory=list)


@contextmanager
def answering(gateway: Gateway | None = None) -> Iterator[Gateway]:
    """The HTTP side alone."""
    found = gateway or Gateway()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def promoting(url: str, model: str, fate: Fate = promoted) -> Iterator[Gateway]:
    """With a leader beside it, which looks at the store."""
    store, enough = open_store(url, model), threading.Event()
    with answering() as gateway:
        thread = threading.Thread(target=_lead, args=(store, gateway, fate, enough))
        thread.start()
        try:
            yield gateway
        finally:
            enough.set()
            thread.join()


def _lead(store: Store, gateway: Gateway, fate: Fate, enough: threading.Event) -> None:
    done = 0
    while not enough.wait(POLL_S):
        newest = store.newest()
        if newest is None or newest.version == done:
            continue
        done = newest.version
        before = store.rollouts.read()
        stage, reason = fate(newest)
        label = label_of(newest.version, newest.digest)
        if stage is Stage.PROMOTED:
            gateway.label = label
            gateway.promoted.append(newest.version)
        store.rollouts.write(
            Rollout(
                id=f"r{done}", model=store.model, version=done, label=label, digest=newest.digest,
                from_version=done - 1, from_label=gateway.label, mode="atomic", stage=stage, reason=reason,
                generation=before.generation if before is not None else 0,
            )
        )  # fmt: skip


def _handler(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    chance = random.Random(1)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
            least = self.headers.get("x-model-version-min")
            gateway.asked.append(Asked(body["n"], least, body))
            status, label = gateway.answers.pop(0) if gateway.answers else (200, None)
            self._answer(status, label or gateway.label, body)

        def _answer(self, status: int, label: str, body: dict[str, Any]) -> None:
            content: dict[str, Any] = {"error": {"message": "played", "code": "played"}}
            if status == 200:
                length = min(4, body["max_tokens"])
                content = {"choices": [_choice(index, length, chance) for index in range(body["n"])]}
            raw = msgspec.json.encode(content)
            self.send_response(status)
            self.send_header("x-model-version", label)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def _choice(index: int, length: int, chance: random.Random) -> dict[str, Any]:
    ids = [chance.randrange(40, 120) for _ in range(length)]
    return {
        "index": index,
        "text": "",
        "token_ids": ids,
        "logprobs": {"token_logprobs": [-math.log(VOCABULARY)] * length},
    }
