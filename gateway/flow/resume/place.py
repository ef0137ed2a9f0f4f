"""Behind which produced token another engine goes on, and what of the text it must not say again. Pure.

An engine may hold text back (the beginning of a stop string, half a character), so the client may have less
than the tokens' text. `text_of(count)` is the text of the first so many tokens, from an engine's tokenizer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from gateway.flow.resume.produced import CannotContinue, Produced

LOOKED_BACK = 12
"""Tokens whose text an engine may hold back."""
UNFINISHED = "\ufffd"
"""Stands for half a character."""


class Place(NamedTuple):
    tokens: int
    """Those that the other engine takes as given."""
    said_again: str = ""
    """What it will say once more, first of all: the client has it."""
    missing: str = ""
    """What the client has not got yet of those tokens' text."""


async def find_place(produced: Produced, text_of: Callable[[int], Awaitable[str]]) -> Place:
    """Where to go on. Raises CannotContinue where that cannot be told."""
    total, told = len(produced.ids), produced.text
    whole = await text_of(total)
    if whole == told:
        return Place(total)
    stops = produced.asked.get("stop") is not None
    if whole.startswith(told) and not stops and UNFINISHED not in whole[len(told) :]:
        return Place(total, missing=whole[len(told) :])
    for count in range(total - 1, max(-1, total - 1 - LOOKED_BACK), -1):
        text = await text_of(count)
        if text == told:
            return Place(count)
        if produced.greedy and told.startswith(text):
            return Place(count, said_again=told[len(text) :])
    raise CannotContinue("where the produced text ends cannot be told from its tokens")
