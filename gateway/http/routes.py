"""The hot routes, in one table: what a client may POST, and where it goes on an engine.

The engine's path is a constant of this table, never a part of the request: nothing that a client
writes into a path can reach an engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.observe.labels import Route as RouteName


@dataclass(frozen=True, slots=True)
class Ending:
    """What tells a whole event stream from a broken one."""

    mark: bytes
    """Stands in the last event, and hardly anywhere else: looked for first, because that is fast."""
    line: re.Pattern[bytes]
    """The last event's line. A model's text never matches: JSON holds no bare line feed."""

    def found_in(self, data: bytes) -> bool:
        return self.mark in data and self.line.search(data) is not None


OPENAI_ENDING = Ending(b"[DONE]", re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]"))
RESPONSES_ENDING = Ending(
    b"response.", re.compile(rb"(?:\A|[\r\n])event: ?response\.(?:completed|incomplete|failed)")
)


@dataclass(frozen=True, slots=True)
class HotRoute:
    """A hot route."""

    name: RouteName
    path: bytes
    """Where it is at the gateway, and (but for `/predict`) at the engine."""
    summary: str
    ending: Ending = OPENAI_ENDING
    """How a whole stream ends."""
    generates: bool = True
    """Whether the engine computes tokens for it, one after the other."""
    reusable: bool = False
    """Whether an answer of its kind may be kept, and shared."""


ROUTES = (
    HotRoute(RouteName.PREDICT, b"/predict", "Answer a prompt, several prompts, or a conversation"),
    HotRoute(RouteName.COMPLETIONS, b"/v1/completions", "OpenAI: complete a prompt", reusable=True),
    HotRoute(RouteName.CHAT, b"/v1/chat/completions", "OpenAI: answer a conversation", reusable=True),
    HotRoute(RouteName.EMBEDDINGS, b"/v1/embeddings", "OpenAI: embed texts", generates=False),
    HotRoute(
        RouteName.RESPONSES,
        b"/v1/responses",
        "OpenAI: the Responses API",
        ending=RESPONSES_ENDING,
    ),
    HotRoute(RouteName.TOKENIZE, b"/tokenize", "vLLM: text to token ids", generates=False),
    HotRoute(RouteName.DETOKENIZE, b"/detokenize", "vLLM: token ids to text", generates=False),
)

BY_PATH = {route.path: route for route in ROUTES}
