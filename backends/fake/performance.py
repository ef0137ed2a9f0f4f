"""One generation: what is said, in what order and at what pace. Pure; time passes elsewhere.

A `Performance` holds the finished text of every choice from the start. `plain` gives the whole answer,
`events` the same as a stream whose items say how long to wait before them and how many tokens they bring,
so that counters move while an answer is under way. `abort` (a pause of the engine) ends it at the next item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from backends.fake import shapes
from backends.fake.asks import Ask, Kind, Refusal
from backends.fake.behaviour import Answer, Behaviour
from backends.fake.shapes import JsonObject
from backends.fake.words import Prompt, Token, generate, logprob, prompt_ids, prompt_text

_MARK, _MARK_JSON = "\0", b'"\\u0000"'
"""A text that no event holds, and its JSON."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a stream: seconds to wait before it, its content (one JSON text an event), its tokens."""

    wait_s: float
    events: tuple[bytes, ...]
    tokens: int
    names: tuple[bytes, ...] = ()
    """The types of the events, where they are named."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One choice."""

    prompt: Prompt
    tokens: list[Token]
    finish_reason: str
    stop_reason: str | None


class Performance:
    def __init__(
        self,
        kind: Kind,
        ask: Ask,
        answer: Answer,
        behaviour: Behaviour,
        weights: str,
        name: str,
        created: int,
    ) -> None:
        """Raises Refusal where the engine refuses the prompt or the model."""
        self._kind = kind
        self._ask = ask
        self._answer = answer
        self._weights = weights
        self._name = name
        self._created = created
        self._model = ask.model or behaviour.model
        if behaviour.strict_model and self._model != behaviour.model:
            raise Refusal(404, f"The model `{self._model}` does not exist.", "NotFoundError", "model")
        self._prompts = ask.prompts(kind)
        longest = max(len(prompt_ids(prompt)) for prompt in self._prompts)
        if longest > behaviour.max_model_len:
            raise Refusal(
                400,
                f"This model's maximum context length is {behaviour.max_model_len} tokens. "
                f"However, your request has {longest} input tokens. "
                "Please reduce the length of the input messages.",
                param="input_tokens",
            )
        self._parts = [] if answer.empty_choices else self._cast()
        self.prompt_tokens = sum(len(prompt_ids(prompt)) for prompt in self._prompts)
        self.aborted = False
        self._paced = 0
        """Tokens of each choice for which `pace` let time pass."""
        self._repeats = ask.logprobs is None and not ask.return_token_ids and not ask.continuous_usage
        """Whether the events in the middle of a choice differ in nothing but their text."""
        self._templates: dict[int, tuple[bytes, bytes]] = {}
        """By choice: such an event before and after its text."""

    @property
    def streams(self) -> bool:
        return bool(self._ask.stream)

    @property
    def completion_tokens(self) -> int:
        return sum(len(part.tokens) for part in self._parts)

    def texts(self) -> list[list[str]]:
        """Of each choice its tokens."""
        return [[token.text for token in part.tokens] for part in self._parts]

    def pace(self) -> Iterator[tuple[float, int]]:
        """The steps of a plain answer before it can be sent: seconds to wait, tokens they bring."""
        for at in range(max((len(part.tokens) for part in self._parts), default=0) or 1):
            yield self._wait(at), sum(len(part.tokens) > at for part in self._parts)
            self._paced = at + 1

    def plain(self) -> bytes:
        if self.aborted:
            self._parts = [_Part(p.prompt, p.tokens[: self._paced], "abort", None) for p in self._parts]
        counts = shapes.full_usage(self.prompt_tokens, self.completion_tokens)
        if self._kind is Kind.CHAT:
            prompt = self._prompts[0]
            body = shapes.chat(
                self._name,
                self._created,
                self._model,
                [self._chat_choice(index, part) for index, part in enumerate(self._parts)],
                counts,
                self._prompt_logprobs(prompt),
                list(prompt_ids(prompt)) if self._ask.return_token_ids else None,
            )
        else:
            choices = [self._completion_choice(index, part) for index, part in enumerate(self._parts)]
            body = shapes.completion(self._name, self._created, self._model, choices, counts)
        return msgspec.json.encode(body)

    def steps(self) -> Iterator[Step]:
        """The stream without `[DONE]`. Choices take turns, token by token."""
        if self._kind is Kind.CHAT:
            yield Step(self._wait(0), tuple(self._role(index) for index in range(len(self._parts))), 0)
        running = list(range(len(self._parts)))
        sent = [0] * len(self._parts)
        at = 0
        while running:
            events = tuple(self._delta(index, at) for index in running)
            for index in running:
                sent[index] += bool(self._parts[index].tokens)
            wait_s = self._wait(at) if at or self._kind is Kind.COMPLETION else 0.0
            yield Step(wait_s, events, len(events))
            at += 1
            running = [i for i in running if len(self._parts[i].tokens) > at]
            if self.aborted:
                yield Step(0.0, tuple(self._delta(index, at) for index in running), 0)
                break
        if self._ask.include_usage:
            last = self._event([])
            last["usage"] = shapes.usage(self.prompt_tokens, sum(sent))
            last["system_fingerprint"] = shapes.FINGERPRINT
            yield Step(0.0, (msgspec.json.encode(last),), 0)

    def _cast(self) -> list[_Part]:
        parts = []
        for at, prompt in enumerate(self._prompts):
            said = self._ask.said(self._kind, at)
            for choice in range(self._ask.choices):
                parts.append(self._part(prompt, said, at, choice))
        return parts

    def _part(self, prompt: Prompt, said: str, at: int, choice: int) -> _Part:
        ask, answer = self._ask, self._answer
        count = (ask.limit if answer.tokens is None else answer.tokens) + at * answer.tokens_step
        tokens = generate(answer, prompt, said, self._weights, ask.seed, choice, count)
        tokens, stop = _stopped(tokens, ask.stops)
        finish_reason = "stop" if stop is not None or len(tokens) < ask.limit else "length"
        return _Part(prompt, tokens, answer.finish_reason or finish_reason, stop)

    def _wait(self, at: int) -> float:
        """Seconds before token `at`."""
        if at == 0:
            return self._answer.delay_first_chunk_s
        return 1 / self._answer.tokens_per_s if self._answer.tokens_per_s else 0.0

    def _echoed(self, part: _Part) -> str:
        return prompt_text(part.prompt) if self._ask.echo and self._kind is Kind.COMPLETION else ""

    def _ids(self, tokens: Sequence[Token]) -> list[int] | None:
        return [token.id for token in tokens] if self._ask.return_token_ids else None

    def _completion_choice(self, index: int, part: _Part) -> JsonObject:
        return shapes.completion_choice(
            index,
            self._echoed(part) + "".join(token.text for token in part.tokens),
            part.finish_reason,
            part.stop_reason,
            self._logprobs(part.tokens, 0, 0),
            self._ids(part.tokens),
            self._prompt_logprobs(part.prompt),
            list(prompt_ids(part.prompt)) if self._ask.return_token_ids else None,
        )

    def _chat_choice(self, index: int, part: _Part) -> JsonObject:
        return shapes.chat_choice(
            index,
            "".join(token.text for token in part.tokens),
            part.finish_reason,
            part.stop_reason,
            self._logprobs(part.tokens, 0, 0),
            self._ids(part.tokens),
        )

    def _event(self, choices: list[JsonObject]) -> JsonObject:
        kind = "chat.completion.chunk" if self._kind is Kind.CHAT else "text_completion"
        return shapes.event(self._name, kind, self._created, self._model, choices)

    def _role(self, index: int) -> bytes:
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        event = self._event([choice])
        event["prompt_token_ids"] = list(prompt_ids(self._prompts[0])) if self._ask.return_token_ids else None
        event["prompt_text"] = None
        if self._ask.continuous_usage:
            event["usage"] = shapes.usage(self.prompt_tokens, 0)
        return msgspec.json.encode(event)

    def _middle(self, index: int, text: str) -> bytes:
        """An event in the middle of a choice."""
        template = self._templates.get(index)
        if template is None:
            before, _, after = self._delta(index, 1, _MARK).partition(_MARK_JSON)
            template = self._templates[index] = (before, after)
        return template[0] + msgspec.json.encode(text) + template[1]

    def _delta(self, index: int, at: int, instead: str | None = None) -> bytes:
        """The event with token `at` of a choice, or with another text instead."""
        part = self._parts[index]
        if self._repeats and instead is None and 0 < at < len(part.tokens) - 1 and not self.aborted:
            return self._middle(index, part.tokens[at].text)
        new = [] if self.aborted else part.tokens[at : at + 1]
        finish: str | None = None
        stop: str | None = None
        if self.aborted:
            finish = "abort"
        elif at + 1 >= len(part.tokens):
            finish, stop = part.finish_reason, part.stop_reason
        text = "".join(token.text for token in new) if instead is None else instead
        before = sum(len(token.text) for token in part.tokens[:at]) if self._ask.logprobs is not None else 0
        logprobs = self._logprobs(new, at, before)
        if self._kind is Kind.CHAT:
            choice = shapes.chat_delta(index, text, finish, stop, logprobs, self._ids(new))
        else:
            ids = list(prompt_ids(part.prompt)) if self._ask.return_token_ids and at == 0 else None
            text = self._echoed(part) + text if at == 0 else text
            choice = shapes.completion_delta(index, text, finish, stop, logprobs, ids, self._ids(new))
        event = self._event([choice])
        if finish is not None and not self._ask.include_usage:
            event["system_fingerprint"] = shapes.FINGERPRINT
        if self._ask.continuous_usage:
            event["usage"] = shapes.usage(self.prompt_tokens, at + len(new))
        return msgspec.json.encode(event)

    def _logprobs(self, tokens: Sequence[Token], at: int, offset: int) -> JsonObject | None:
        """Of the tokens, the first of which has this position and character offset in the answer."""
        if self._ask.logprobs is None or self._ask.logprobs is False:
            return None
        values = [logprob(self._weights, token.id, at + i) for i, token in enumerate(tokens)]
        if self._kind is Kind.CHAT:
            content = [
                {"token": t.text, "logprob": v, "bytes": list(t.text.encode()), "top_logprobs": []}
                for t, v in zip(tokens, values, strict=True)
            ]
            return {"content": content}
        return {
            "text_offset": list(accumulate((len(token.text) for token in tokens[:-1]), initial=offset))[
                : len(tokens)
            ],
            "token_logprobs": values,
            "tokens": [token.text for token in tokens],
            "top_logprobs": [{t.text: v} for t, v in zip(tokens, values, strict=True)],
        }

    def _prompt_logprobs(self, prompt: Prompt) -> list[Any] | None:
        if self._ask.prompt_logprobs is None:
            return None
        entries: list[Any] = [None]
        for at, token in enumerate(prompt_ids(prompt)[1:], 1):
            value = logprob(self._weights, token, at)
            entries.append({str(token): {"logprob": value, "rank": 1, "decoded_token": f"<{token}>"}})
        return entries


def _stopped(tokens: list[Token], stops: Sequence[str]) -> tuple[list[Token], str | None]:
    """The tokens up to the first stop text, which is cut away, and that text."""
    if not stops:
        return tokens, None
    text = "".join(token.text for token in tokens)
    found = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return tokens, None
    end, stop = min(found)
    kept: list[Token] = []
    length = 0
    for token in tokens:
        if length >= end:
            break
        kept.append(Token(token.id, token.text[: end - length]))
        length += len(token.text)
    return kept, stop
