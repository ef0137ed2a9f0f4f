"""What the fake engine says, and how it counts: pure functions.

Text follows from prompt, weights, seed and choice alone, so that an answer of the wrong weights or for
another caller is seen; each token from all before it, so that who is given a part as prompt goes on with
it. The vocabulary is the 256 bytes (text is tokenised to its UTF-8 bytes, which makes counting and
reversing trivial) and, above them, the words that are generated.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from backends.fake.behaviour import Answer, Say

Prompt = str | tuple[int, ...]

FIRST_WORD_ID = 256
_TEXT = """
the of and to in is that it for as with was on be at by this had not are but from or have an they
which one you were her all she there would their we him been has when who will more no if out so
said what up its about into than them can only other new some could time these two may then do first
any
"""
_WORDS = tuple(f" {word}" for word in _TEXT.split())
_MULTIBYTE_WORDS = tuple(f" {a}{b}" for a in "éßñ語世界🙂🚀" for b in "ü日本中文ж🐍ö")
_VOCABULARY = _WORDS + _MULTIBYTE_WORDS
WEIGHTS_NAME_ID = FIRST_WORD_ID + len(_VOCABULARY)
"""The token that stands for the weights' name."""
PIECE_ID = WEIGHTS_NAME_ID + 1
"""The token that stands for a piece of given text."""
_PIECE_CHARS = 4


class Token(NamedTuple):
    id: int
    text: str


_TOKENS = tuple(Token(FIRST_WORD_ID + byte % len(_WORDS), _WORDS[byte % len(_WORDS)]) for byte in range(256))
"""A word for each value of a byte."""
_MULTIBYTE_TOKENS = tuple(
    Token(
        FIRST_WORD_ID + len(_WORDS) + byte % len(_MULTIBYTE_WORDS),
        _MULTIBYTE_WORDS[byte % len(_MULTIBYTE_WORDS)],
    )
    for byte in range(256)
)


def prompt_ids(prompt: Prompt) -> Sequence[int]:
    return prompt.encode() if isinstance(prompt, str) else prompt


def prompt_text(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else ",".join(map(str, prompt))


def detokenize(ids: Sequence[int], weights: str = "") -> str:
    """The text of tokens, to an engine with these weights. What is no UTF-8 or unknown shows as U+FFFD."""
    data = bytearray()
    for token in ids:
        if 0 <= token < FIRST_WORD_ID:
            data.append(token)
        elif token < WEIGHTS_NAME_ID:
            data += _VOCABULARY[token - FIRST_WORD_ID].encode()
        elif token == WEIGHTS_NAME_ID and weights:
            data += f" {weights}".encode()
        else:
            data += "\ufffd".encode()
    return data.decode(errors="replace")


def generate(
    answer: Answer, prompt: Prompt, said: str, weights: str, seed: int | None, choice: int, count: int
) -> list[Token]:
    """The tokens of one choice. `said` is what `Say.PROMPT` repeats; texts that are given ignore `count`."""
    if answer.text is not None:
        return _pieces(answer.text, answer.event_bytes)
    if answer.say is Say.PROMPT:
        return _pieces(said, answer.event_bytes)
    vocabulary = _MULTIBYTE_TOKENS if answer.multibyte else _TOKENS
    drawn = zlib.crc32(f"{weights}\0{seed}\0{choice}".encode())
    ids = prompt_ids(prompt)
    state = zlib.crc32(ids, drawn) if isinstance(ids, bytes) else _after(ids, drawn)
    tokens: list[Token] = []
    begins = isinstance(ids, bytes) or WEIGHTS_NAME_ID not in ids
    if weights and count and begins:
        tokens.append(Token(WEIGHTS_NAME_ID, f" {weights}"))
        state = _after((WEIGHTS_NAME_ID,), state)
    while len(tokens) < count:
        tokens.append(vocabulary[(state * 2654435761 >> 13) & 255])
        state = _after((tokens[-1].id,), state)
    if answer.event_bytes:
        tokens = [Token(token.id, _filled(token.text, answer.event_bytes)) for token in tokens]
    return tokens


def _after(ids: Sequence[int], state: int) -> int:
    """The state behind these tokens; of text the same as of its bytes."""
    for token in ids:
        state = zlib.crc32(token.to_bytes(1 if token < FIRST_WORD_ID else 4, "little"), state)
    return state


def logprob(weights: str, token: int, position: int) -> float:
    """A log probability in (-8, 0) that follows from weights, token and position."""
    return -(zlib.crc32(f"{weights}\0{token}\0{position}".encode()) % 8000 + 1) / 1000


def _pieces(text: str, fill: int) -> list[Token]:
    return [
        Token(PIECE_ID, _filled(text[i : i + _PIECE_CHARS], fill)) for i in range(0, len(text), _PIECE_CHARS)
    ]


def _filled(text: str, size: int) -> str:
    return text + "x" * (size - len(text.encode()))
