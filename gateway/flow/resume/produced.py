"""From a request and the events of its answer to the request by which another engine goes on. Pure.

The other engine gets the prompt's token ids and those produced after them, as a prompt of `/v1/completions`
(also for chats: the ids are those that the template gave), and what is left of `max_tokens`. What cannot be
carried over is refused in words: the state of a seeded sampler, penalties that count produced tokens,
grammars, tool calls, several answers at once. Forms: vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.flow.resume.kept import Kept
from gateway.http.forms import payloads

Object = dict[str, Any]

DEFAULT_COMPLETION_TOKENS = 16
"""vLLM's, for `/v1/completions` without `max_tokens`."""
CONTEXT_TOKENS = 8
"""Of the prompt's end: tokens are turned into text together with what stands before them."""

_SAMPLING = (
    *(
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "length_penalty",
        "logit_bias",
    ),
    *(
        "stop",
        "stop_token_ids",
        "bad_words",
        "include_stop_str_in_output",
        "ignore_eos",
        "skip_special_tokens",
    ),
    *("spaces_between_special_tokens", "allowed_token_ids", "priority", "user", "stream_interval", "seed"),
)
"""What is the same for the rest of an answer as for its beginning."""
_SEVERAL = ("n", "best_of")
_GUIDED = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "tools")
_COUNTING = ("presence_penalty", "frequency_penalty")
_WHOLE_ONLY = ("echo", "suffix", "use_beam_search", "prompt_logprobs", "functions")


class CannotContinue(Exception):
    """Why this answer cannot go on elsewhere, for its client."""


@dataclass(slots=True)
class Produced:
    """What an answer consists of until now."""

    asked: Object
    chat: bool
    start: Object = field(default_factory=dict)
    """`id`, `object`, `created`, `model` as the client has seen them."""
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    text: str = ""
    """As the client has it."""
    finish: Object | None = None
    """The choice that ended it; None: it goes on."""
    ended: bool = False
    """Its last event has come."""
    counted: bool = False
    """The event with the usage has come."""

    @property
    def greedy(self) -> bool:
        return self.asked.get("temperature") == 0

    @property
    def wants_usage(self) -> bool:
        """An event with the usage stands at the end."""
        return bool(self._options.get("include_usage"))

    @property
    def wants_usages(self) -> bool:
        """Every event carries the usage until then."""
        return self.wants_usage and bool(self._options.get("continuous_usage_stats"))

    @property
    def _options(self) -> Object:
        options = self.asked.get("stream_options")
        return options if isinstance(options, dict) else {}

    @property
    def context(self) -> list[int]:
        """The prompt's last tokens."""
        return self.prompt_ids[-CONTEXT_TOKENS:]

    @property
    def limit(self) -> int | None:
        """Most tokens of the whole answer; None: as many as fit."""
        for name in ("max_completion_tokens", "max_tokens"):
            value = self.asked.get(name)
            if isinstance(value, int):
                return value
        return None if self.chat else DEFAULT_COMPLETION_TOKENS

    def usage(self, tokens: int) -> Object:
        """The counts when so many have been produced in all."""
        prompt = len(self.prompt_ids)
        return {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}


def read(kept: Kept, *, chat: bool) -> Produced:
    """Understand what was kept. Raises CannotContinue."""
    if kept.lost:
        raise CannotContinue("the answer is too long")
    try:
        asked = msgspec.json.decode(kept.body)
        if not isinstance(asked, dict):
            raise CannotContinue("the request is not understood")
        _check(asked)
        produced = Produced(asked, chat)
        for event in _events(kept.events):
            _take(produced, event)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CannotContinue("its events are not understood") from error
    if not produced.prompt_ids and produced.finish is None:
        raise CannotContinue("the engine gave no token ids")
    return produced


def body_of(produced: Produced, count: int, room: int | None) -> bytes:
    """The request by which another engine goes on behind the first `count` produced tokens.

    `room`: tokens that engine takes in all, prompt and answer; None: it did not say. Raises CannotContinue.
    """
    asked = produced.asked
    left = produced.limit
    if left is not None:
        left -= count
    elif room is not None:
        left = room - len(produced.prompt_ids) - count
    if left is None or left < 1:
        raise CannotContinue("nothing is left of its length")
    body = {name: asked[name] for name in _SAMPLING if asked.get(name) is not None}
    body["prompt"] = [*produced.prompt_ids, *produced.ids[:count]]
    body["max_tokens"] = left
    if isinstance(asked.get("min_tokens"), int):
        body["min_tokens"] = max(0, asked["min_tokens"] - count)
    logprobs = _logprobs(asked, produced.chat)
    if logprobs is not None:
        body["logprobs"] = logprobs
    body |= {
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": produced.wants_usages},
    }
    return msgspec.json.encode(body)


def _logprobs(asked: Object, chat: bool) -> int | None:
    wanted = asked.get("logprobs")
    if chat:
        return int(asked.get("top_logprobs") or 0) if wanted else None
    return int(wanted) if isinstance(wanted, int) else None


def _check(asked: Object) -> None:
    """Raise CannotContinue for what only the engine that began can go on with."""
    for name in _SEVERAL:
        if asked.get(name) not in (None, 1):
            raise CannotContinue(f"`{name}` asks for several answers")
    for name in _GUIDED:
        if asked.get(name):
            raise CannotContinue(f"the state of `{name}` cannot be carried over")
    form = asked.get("response_format")
    if isinstance(form, dict) and form.get("type") not in (None, "text"):
        raise CannotContinue("the state of `response_format` cannot be carried over")
    for name in _COUNTING:
        if asked.get(name):
            raise CannotContinue(f"`{name}` counts the tokens that were produced before")
    for name in _WHOLE_ONLY:
        if asked.get(name):
            raise CannotContinue(f"an answer with `{name}` cannot be continued")
    if asked.get("seed") is not None and asked.get("temperature") != 0:
        raise CannotContinue("the state of a seeded sampler cannot be carried over")
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) and len(prompt) > 1:
        raise CannotContinue("it answers several prompts")


def _events(kept: Sequence[bytes]) -> Iterator[Object | None]:
    """The events; None for the last one."""
    for payload in payloads(b"".join(kept)):
        yield None if payload == b"[DONE]" else msgspec.json.decode(payload)


def _take(produced: Produced, event: Object | None) -> None:
    if event is None:
        produced.ended = True
        return
    if "error" in event:
        raise CannotContinue("the engine itself reported an error")
    if not produced.start:
        produced.start = {name: event[name] for name in ("id", "object", "created", "model")}
    produced.prompt_ids = produced.prompt_ids or list(event.get("prompt_token_ids") or ())
    if not event["choices"]:
        produced.counted = event.get("usage") is not None
        return
    [choice] = event["choices"]
    produced.prompt_ids = produced.prompt_ids or list(choice.get("prompt_token_ids") or ())
    said = choice["delta"] if produced.chat else choice
    spoken = {name for name, value in said.items() if value} if produced.chat else set()
    if not spoken <= {"role", "content"}:
        raise CannotContinue(f"the state of `{min(spoken - {'role', 'content'})}` cannot be carried over")
    text = (said.get("content") if produced.chat else said.get("text")) or ""
    ids = choice.get("token_ids")
    if text and not ids:
        raise CannotContinue("the engine gave no token ids")
    produced.ids += ids or ()
    produced.text += text
    if choice.get("finish_reason") is not None:
        produced.finish = choice
