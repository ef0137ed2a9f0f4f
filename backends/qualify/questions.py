"""What the oracle asks an engine, and how: token ids in fixed order, one request at a time, then one batch.

One at a time, because engines compute a batch in another order than a single request, and which requests
meet is chance; a batch as well, because it runs other kernels. Ids are drawn from the vocabulary with a
fixed seed: no tokenizer is needed, and two runs ask the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import msgspec

from backends.qualify.compare import Heard
from checkpoints.probe.engine import Engine

SEED = 20
ANSWER_TOKENS = 16
LONG = 300
"""Tokens: more than two blocks of any prefix cache (CPU: 128)."""
BATCH = 8
"""Prompts that are asked together."""
SPECIAL_IDS = 16
"""The lowest ids are special tokens in most vocabularies."""


class Questions(msgspec.Struct, frozen=True):
    """Prompts in token ids; the first two begin alike.

    The longest come first: vLLM 0.32 on a CPU with AMX dies (illegal instruction) of a first request of a
    few tokens, since only a larger matrix product asks the kernel for the tile registers.
    """

    prompts: tuple[tuple[int, ...], ...]
    scored: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...]
    """Asked in one request."""


def questions_for(vocabulary: int, context: int) -> Questions:
    """Prompts that fit into `context` tokens with their answers. Pure."""
    random = Random(SEED)  # no secret: the same in each run
    room = max(2, context - ANSWER_TOKENS - 1)
    long = min(LONG, room * 3 // 4)
    low = min(SPECIAL_IDS, vocabulary // 2)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(random.randrange(low, vocabulary) for _ in range(min(count, room)))

    shared = draw(long)
    prompts = (shared, (*shared, *draw(min(20, room - long))), draw(70), draw(24), draw(3))
    return Questions(prompts, (shared, prompts[3]), tuple(draw(24) for _ in range(BATCH)))


def vocabulary_of(config: Mapping[str, object]) -> int:
    """`vocab_size`; of composite models their text part's."""
    text = config.get("text_config")
    found = (text if isinstance(text, Mapping) else config).get("vocab_size")
    return found if isinstance(found, int) and found > 1 else 256


def listen_to(engine: Engine, questions: Questions) -> Heard:
    """Ask everything: each prompt twice, the second time out of the prefix cache. Blocks.

    The engine's prefix cache must be empty, and nobody else may ask it. Raises EngineError.
    """
    first, again = (
        tuple(tuple(engine.generate(ids, ANSWER_TOKENS, temperature=0)) for ids in questions.prompts)
        for _ in range(2)
    )
    scored = tuple(tuple(engine.score(ids)) for ids in questions.scored)
    together = engine.generate_together(questions.together, ANSWER_TOKENS)
    return Heard(first, again, scored, tuple(map(tuple, together)))


def read_vocabulary(folder: Path) -> int:
    """`vocabulary_of` a model's folder. Raises OSError, msgspec.DecodeError."""
    return vocabulary_of(msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, object]))
