"""`/v1/responses`, as much as a client needs to see: one message, plain or as named events. Pure.

The request is turned into a chat; what the chat says is told in the shapes of the Responses API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from backends.fake.asks import Ask, Refusal
from backends.fake.performance import Performance, Step
from backends.fake.shapes import JsonObject


class _Body(msgspec.Struct):
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    model: str | None = None
    stream: bool | None = False
    max_output_tokens: int | None = None
    seed: int | None = None


def read_response_ask(body: bytes) -> Ask:
    """The chat that a request stands for. Raises Refusal."""
    try:
        given = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"1 validation error:\n  {error}", "Bad Request", "body") from error
    if not given.input:
        raise Refusal(400, "1 validation error:\n  input: Field required", "Bad Request", "body.input")
    messages = [{"role": "user", "content": given.input}] if isinstance(given.input, str) else given.input
    if given.instructions:
        messages = [{"role": "system", "content": given.instructions}, *messages]
    return Ask(
        messages=messages,
        model=given.model,
        stream=given.stream,
        max_tokens=given.max_output_tokens,
        seed=given.seed,
    )


class ResponseStory:
    """A performance, told as a response."""

    def __init__(self, performance: Performance, name: str, created: int, model: str) -> None:
        self.performance = performance
        self._name = name
        self._created = created
        self._model = model

    def plain(self) -> bytes:
        return msgspec.json.encode(self._response("completed", self._text()))

    def steps(self) -> Iterator[Step]:
        item = f"msg_{self._name}"
        place = {"item_id": item, "output_index": 0, "content_index": 0}
        yield self._step(0.0, 0, "response.created", {"response": self._response("in_progress", None)}, 0)
        number = 1
        texts = self.performance.texts()
        for (wait_s, tokens), text in zip(self.performance.pace(), texts[0] if texts else [], strict=False):
            content = {**place, "delta": text, "logprobs": []}
            yield self._step(wait_s, tokens, "response.output_text.delta", content, number)
            number += 1
        done = {**place, "text": self._text(), "logprobs": []}
        yield self._step(0.0, 0, "response.output_text.done", done, number)
        whole = {"response": self._response("completed", self._text())}
        yield self._step(0.0, 0, "response.completed", whole, number + 1)

    def _text(self) -> str:
        return "".join(self.performance.texts()[0]) if self.performance.texts() else ""

    def _step(self, wait_s: float, tokens: int, kind: str, content: JsonObject, number: int) -> Step:
        data = msgspec.json.encode({**content, "sequence_number": number, "type": kind})
        return Step(wait_s, (data,), tokens, (kind.encode(),))

    def _response(self, status: str, text: str | None) -> JsonObject:
        output: list[JsonObject] = []
        if text is not None:
            content: JsonObject = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
            output.append(
                {
                    "id": f"msg_{self._name}",
                    "content": [content],
                    "role": "assistant",
                    "status": status,
                    "type": "message",
                    "phase": None,
                }
            )
        prompt, completion = self.performance.prompt_tokens, self.performance.completion_tokens
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        }
        return {
            "id": f"resp_{self._name}",
            "created_at": self._created,
            "incomplete_details": None,
            "instructions": None,
            "metadata": None,
            "model": self._model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": 16,
            "max_tool_calls": None,
            "previous_response_id": None,
            "service_tier": "auto",
            "status": status,
            "truncation": "disabled",
            "usage": usage if text is not None else None,
            "user": None,
        }
