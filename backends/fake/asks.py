"""What a generation request asks for: its body, decoded and judged as vLLM judges it. Pure.

`read_ask` is lax where vLLM is lax (unknown fields are ignored) and refuses with vLLM's status and wording
where vLLM refuses. Nothing here knows how the request is answered.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import msgspec

from backends.fake.words import Prompt, prompt_text


class Kind(Enum):
    COMPLETION = auto()
    CHAT = auto()


class Refusal(Exception):
    """A request that the engine refuses: HTTP status, and the words for it."""

    def __init__(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Ask(msgspec.Struct, kw_only=True):
    """The fields of both kinds that change an answer of the fake."""

    prompt: Any = None
    messages: list[dict[str, Any]] | None = None
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    echo: bool | None = False
    logprobs: int | bool | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None

    @property
    def choices(self) -> int:
        return self.n if self.n is not None else 1

    @property
    def limit(self) -> int:
        """`max_tokens`, or vLLM's default for completions (for chats as well: the fake never talks on)."""
        for given in (self.max_completion_tokens, self.max_tokens):
            if given is not None:
                return given
        return 16

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        options = self.stream_options
        return bool(options and options.include_usage and options.continuous_usage_stats)

    def prompts(self, kind: Kind) -> list[Prompt]:
        """The prompts in order; a chat is one. Raises Refusal as vLLM refuses."""
        if kind is Kind.CHAT:
            if not self.messages:
                raise Refusal(
                    400, "1 validation error: messages: Field required", "Bad Request", "body.messages"
                )
            return ["".join(f"<|{m.get('role', '')}|>{_content(m)}\n" for m in self.messages)]
        return _prompts(self.prompt)

    def said(self, kind: Kind, index: int) -> str:
        """What `Say.PROMPT` repeats for the prompt with this index."""
        if kind is Kind.CHAT:
            return _content(self.messages[-1]) if self.messages else ""
        return prompt_text(self.prompts(kind)[index])


_decoder = msgspec.json.Decoder(Ask, strict=False)


def read_ask(body: bytes) -> Ask:
    """Raises Refusal (400) for what is no JSON object or has fields of the wrong type."""
    try:
        ask = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"1 validation error:\n  {error}", "Bad Request", "body") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(
            400, f"1 validation error:\n  JSON decode error: {error}", "Bad Request", "body"
        ) from error
    if ask.limit < 0:
        raise Refusal(400, f"max_tokens must be at least 0, got {ask.limit}.", param="max_tokens")
    if ask.choices < 1:
        raise Refusal(400, f"n must be at least 1, got {ask.choices}.", param="n")
    return ask


def _prompts(given: object) -> list[Prompt]:
    if isinstance(given, str) and given:
        return [given]
    if isinstance(given, list) and given:
        if all(type(item) is int for item in given):
            return [tuple(given)]
        if all(isinstance(item, str) for item in given):
            return list(given)
        if all(isinstance(item, list) and item and all(type(i) is int for i in item) for item in given):
            return [tuple(item) for item in given]
        raise Refusal(
            400, "1 validation error:\n  prompt: Input should be a valid string", "Bad Request", "body.prompt"
        )
    if given is None or given in ("", []):
        raise Refusal(400, "Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    raise Refusal(
        400, "1 validation error:\n  prompt: Input should be a valid string", "Bad Request", "body.prompt"
    )


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
