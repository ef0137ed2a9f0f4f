"""What users ask: a seeded mix of requests, and requests made from recorded sizes. Pure.

Prompts are English-like words, about three tokens to four of them. A share of the requests begins with one
of a few long system prompts, as chats do; another share repeats an earlier request word for word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import msgspec

from loadtests.traces import MOONCAKE_BLOCK_TOKENS, Arrival
from loadtests.wire import post

_PROSE = """
the of and to in that is was he for it with as his on be at by had not are but from or have an they which one
you were all her she there would their we him been has when who will no more if out so up said what its about
than into them can only other time new some could these two may first then do any like my now over such our
man me even most made after also well must before great back through city river house winter morning letter
paper water mountain country garden window number question
"""
WORDS = tuple(_PROSE.split())
WORDS_PER_TOKEN = 0.75
"""For such words, with the usual tokenizers; sizes need no more than that."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, ready to send."""

    label: str
    wire: bytes
    stream: bool


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the kinds of requests; they need not sum to one."""

    predict: float = 0.4
    predict_stream: float = 0.2
    chat: float = 0.15
    chat_stream: float = 0.15
    completions: float = 0.1
    shared_prefix: float = 0.3
    """Of all: begin with one of `prefixes` system prompts."""
    repeats: float = 0.1
    """Of all: repeat an earlier request word for word."""
    prefixes: int = 8
    prefix_tokens: int = 200
    prompt_tokens: int = 40
    answer_tokens: int = 32


PREDICT_ONLY = Mix(
    predict=1, predict_stream=0, chat=0, chat_stream=0, completions=0, shared_prefix=0, repeats=0
)
MEMORY = 200
"""Earlier requests that may be repeated."""


def text(tokens: int, random: Random) -> str:
    """About so many tokens of words."""
    return " ".join(random.choices(WORDS, k=max(1, int(tokens * WORDS_PER_TOKEN))))


def asks(mix: Mix, model: str | None, seed: int) -> Iterator[Ask]:
    """Requests without end; the same seed gives the same ones."""
    random = Random(seed)
    prefixes = [text(mix.prefix_tokens, random) for _ in range(mix.prefixes)]
    kinds = ("predict", "predict_stream", "chat", "chat_stream", "completions")
    weights = (mix.predict, mix.predict_stream, mix.chat, mix.chat_stream, mix.completions)
    earlier: list[Ask] = []
    while True:
        if earlier and random.random() < mix.repeats:
            yield random.choice(earlier)
            continue
        prefix = random.choice(prefixes) if random.random() < mix.shared_prefix else ""
        prompt = f"{text(mix.prompt_tokens, random)}"
        (kind,) = random.choices(kinds, weights)
        ask = make(kind, prompt, prefix, model, mix.answer_tokens)
        earlier = [*earlier[-MEMORY:], ask]
        yield ask


def make(kind: str, prompt: str, prefix: str, model: str | None, answer_tokens: int) -> Ask:
    """One request of a kind, deterministic (temperature 0)."""
    stream = kind.endswith("_stream")
    path = {"predict": "/predict", "completions": "/v1/completions"}.get(
        kind.removesuffix("_stream"), "/v1/chat/completions"
    )
    body: dict[str, object] = {"max_tokens": answer_tokens, "temperature": 0}
    if model is not None:
        body["model"] = model
    if path.endswith("chat/completions"):
        system = [{"role": "system", "content": prefix}] if prefix else []
        body["messages"] = [*system, {"role": "user", "content": prompt}]
    else:
        body["prompt"] = f"{prefix}\n{prompt}" if prefix else prompt
    if stream:
        body["stream"] = True
    return Ask(f"{path}{' stream' if stream else ''}", post(path, msgspec.json.encode(body)), stream)


def from_trace(arrivals: list[Arrival], model: str | None, seed: int, *, largest: int) -> Iterator[Ask]:
    """A stream for each recorded request, of the recorded sizes (`largest` tokens at most each way)."""
    random = Random(seed)
    for arrival in arrivals:
        tokens = min(largest, arrival.prompt_tokens)
        if arrival.blocks:
            blocks = (text(MOONCAKE_BLOCK_TOKENS, Random(f"{seed} {block}")) for block in arrival.blocks)
            words = " ".join(blocks).split()[: max(1, int(tokens * WORDS_PER_TOKEN))]
            prompt = " ".join(words)
        else:
            prompt = text(tokens, random)
        yield make("predict_stream", prompt, "", model, max(1, min(largest, arrival.answer_tokens)))
