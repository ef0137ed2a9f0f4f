"""Asks an engine everything that a verdict and a diagnosis need: the I/O of the probe, nothing decided.

Texts are scored twice, so the engine's own noise is known. Long prompts are continued once from
whatever prefix the engine has cached, and twice from a cold one (a salt of its own): only
generation reads the prefix cache. Single tokens are generated with the engine's default
temperature and with 1. Texts are tokenized where the engine can.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, cycle, islice
from pathlib import Path

import msgspec

from checkpoints.probe.checksums import Compared, compare
from checkpoints.probe.contract import Probe, Scored
from checkpoints.probe.engine import Engine, Place

WARM_PROMPTS, WARM_TOKENS, WARM_GENERATED = 4, 320, 8
"""Prompts longer than two blocks of 128, the largest block of an engine's prefix cache."""
_AT_A_TIME = 8


class Tokenized(msgspec.Struct, frozen=True):
    """The trainer's and the engine's ids of one golden text."""

    text: str
    chat: bool
    trainer: tuple[int, ...]
    engine: tuple[int, ...]


class Observed(msgspec.Struct, frozen=True):
    """Everything that was seen; rows are the probe's texts."""

    scored: list[list[Place]]
    again: list[list[Place]]
    warm: list[list[Place]]
    cold: list[list[Place]]
    cold_again: list[list[Place]]
    default_next: list[Place]
    plain_next: list[Place]
    tokenized: list[Tokenized]
    weights: Compared

    def logprobs(self) -> list[list[float]]:
        """Of the probe's tokens, first scoring."""
        return [[place.logprob for place in row] for row in self.scored]

    def top1(self) -> list[list[int | None]]:
        """The engine's likeliest tokens."""
        return [[max(place.top, key=place.top.__getitem__) if place.top else None for place in row] for row in self.scored]  # fmt: skip  # noqa: E501


def warm_prompts(probe: Probe, max_tokens: int) -> list[list[int]]:
    """A few long prompts, each beginning with another text of the probe, so that none shares a prefix."""
    length = min(WARM_TOKENS, max_tokens - WARM_GENERATED - 1)
    texts = [text.ids for text in probe.texts]
    starts = range(0, min(WARM_PROMPTS, len(texts)))
    return [
        list(islice(cycle(chain.from_iterable(texts[start:] + texts[:start])), length)) for start in starts
    ]


def warm_up(engine: Engine, probe: Probe) -> None:
    """Fill the engine's prefix cache with the long prompts, as traffic before a swap does."""
    for ids in warm_prompts(probe, engine.max_tokens):
        engine.generate(ids, 1, temperature=0.0)


def observe(engine: Engine, probe: Probe, folder: Path | None = None) -> Observed:
    """Replay; raises `EngineError`. Takes a few seconds on a small model.

    Args:
        folder: the version's files, to compare with the engine's own checksums where it gives any.
    """
    salt = uuid.uuid4().hex
    with ThreadPoolExecutor(_AT_A_TIME, "probe") as pool:

        def score() -> list[list[Place]]:
            return list(pool.map(lambda text: engine.score(text.ids), probe.texts))

        def next_token(temperature: float | None) -> list[Place]:
            def one(text: Scored) -> Place:
                return engine.generate(text.ids[:-1], 1, salt=salt, temperature=temperature)[0]

            return list(pool.map(one, probe.texts))

        return Observed(
            scored=score(),
            again=score(),
            warm=_continued(engine, probe, None),
            cold=_continued(engine, probe, f"{salt}-1"),
            cold_again=_continued(engine, probe, f"{salt}-2"),
            default_next=next_token(None),
            plain_next=next_token(1.0),
            tokenized=_tokenize(engine, probe),
            weights=_checksums(engine, folder),
        )


def _continued(engine: Engine, probe: Probe, salt: str | None) -> list[list[Place]]:
    """One at a time: what else is in the batch must not be a difference between warm and cold."""
    prompts = warm_prompts(probe, engine.max_tokens)
    return [engine.generate(ids, WARM_GENERATED, salt=salt, temperature=0.0) for ids in prompts]


def _checksums(engine: Engine, folder: Path | None) -> Compared:
    reported = engine.weight_checksums() if folder is not None else None
    return compare(folder, reported) if folder is not None and reported is not None else Compared()


def _tokenize(engine: Engine, probe: Probe) -> list[Tokenized]:
    found: list[Tokenized] = []
    for golden in probe.golden:
        ids = engine.tokenize(golden.text, chat=golden.chat)
        if ids is not None:
            found.append(Tokenized(golden.text, golden.chat, golden.ids, tuple(ids)))
    return found
