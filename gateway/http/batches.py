"""Prompts of several /predict requests as one request to an engine, and its answer taken apart again. Pure.

An engine counts the tokens of a request as a whole. So a batch asks for the token ids (`return_token_ids`,
vLLM), counts them prompt by prompt, and leaves them out of what it hands on: each request gets the answer
that the engine would have given to it alone. The ids cost some bytes on a local connection; nothing else
tells how long each prompt was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.http import forms
from gateway.http.forms import Object
from gateway.http.predict import PredictRequest
from gateway.http.sse import boundary

PATH = b"/v1/completions"

MAX_PROMPT_BYTES = 32 * 1024
"""Of one request: above it the engine's work outweighs by far what batching saves."""

_ALONE = frozenset(
    (
        *("n", "best_of", "use_beam_search", "logprobs", "prompt_logprobs", "echo", "return_token_ids"),
        *("request_id", "suffix", "prompt_embeds", "kv_transfer_params", "priority", "cache_salt"),
        *("return_tokens_as_token_ids", "logprob_token_ids", "add_special_tokens", "session_id"),
    )
)
"""Parameters that change an answer's form, or name the one request."""

_PERSONAL = (
    *(
        b"user-agent:",
        b"x-request-id:",
        b"traceparent:",
        b"tracestate:",
        b"baggage:",
        b"cookie:",
        b"referer:",
    ),
    *(b"origin:", b"accept-language:", b"cache-control:", b"pragma:", b"via:", b"forwarded:", b"sec-"),
    *(b"x-forwarded-", b"x-real-ip:", b"priority:"),
)
"""Headers that speak of one client or one hop, and say nothing of the work."""


@dataclass(frozen=True, slots=True)
class Batchable:
    """A request whose prompts may travel with those of others."""

    group: bytes
    """Equal for those that may: headers, parameters, model, kind of prompt."""
    parameters: bytes
    """JSON, an object."""
    block: bytes
    """Header lines for the engine."""
    prompts: tuple[bytes, ...]
    """JSON."""
    max_tokens: int


def batchable(asked: PredictRequest, block: bytes) -> Batchable | None:
    """None for what batching would not help, or would change."""
    prompt = asked.prompt
    prompts: tuple[bytes, ...]
    if asked.stream or prompt is None or not _ALONE.isdisjoint(asked.parameters):
        return None
    if isinstance(prompt, str):
        prompts, kind = (_encode(prompt),), b"t"
    elif isinstance(prompt[0], int):
        prompts, kind = (_encode(prompt),), b"i"
    else:
        prompts, kind = tuple(_encode(each) for each in prompt), b"t" if isinstance(prompt[0], str) else b"i"
    if sum(map(len, prompts)) > MAX_PROMPT_BYTES:
        return None
    parameters = _encode(_parameters(asked))
    lines = [line for line in block.splitlines(keepends=True) if not line.startswith(_PERSONAL)]
    shared = b"".join(lines)
    group = b"\0".join((kind, shared, parameters))
    return Batchable(group, parameters, shared, prompts, asked.max_tokens)


def _parameters(asked: PredictRequest) -> Object:
    fields: Object = {"max_tokens": asked.max_tokens}
    if asked.model is not None:
        fields["model"] = asked.model
    for name in ("temperature", "top_p", "top_k", "stop", "seed"):
        value = getattr(asked, name)
        if value is not None:
            fields[name] = value
    return fields | asked.parameters


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def request_body(parameters: bytes, prompts: Sequence[bytes], stream: bool) -> bytes:
    """The engine's request."""
    streamed = b'"stream":true,' if stream else b""
    return b'{"prompt":[%b],"return_token_ids":true,%b%b' % (b",".join(prompts), streamed, parameters[1:])


@dataclass(slots=True)
class Done:
    """One prompt's answer."""

    index: int
    """Its place in the batch."""
    choice: Object
    prompt_tokens: int
    completion_tokens: int
    start: Object
    """What the answer says beside its choices."""


class Unreadable(Exception):
    """The engine's answer is not one to a batch."""


class Uncounted(Unreadable):
    """It holds no token ids: this engine cannot count prompt by prompt."""


def read_whole(body: bytes, count: int) -> list[Done]:
    """The prompts' answers, out of a whole answer. Raises Unreadable."""
    try:
        answer = _decode(body)
        choices = answer["choices"]
        if sorted(choice["index"] for choice in choices) != list(range(count)):
            raise Unreadable("not a choice for each prompt")
        return [_read_choice(choice, answer) for choice in choices]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise Unreadable("not a completion") from error


def _read_choice(choice: Object, answer: Object) -> Done:
    prompt_ids, ids = choice.get("prompt_token_ids"), choice.get("token_ids")
    if prompt_ids is None or ids is None:
        raise Uncounted("no token ids")
    return Done(
        choice["index"],
        {**choice, "prompt_token_ids": None, "token_ids": None},
        len(prompt_ids),
        len(ids),
        answer,
    )


class StreamReader:
    """The prompts' answers out of a stream, each as soon as it is there."""

    def __init__(self) -> None:
        self._held = b""
        self._texts: dict[int, list[str]] = {}
        self._prompt_tokens: dict[int, int] = {}
        self._tokens: dict[int, int] = {}

    def feed(self, data: bytes) -> Iterator[Done]:
        """Those that these bytes complete. Raises Unreadable, also for an error event."""
        data = self._held + data
        end = boundary(data)
        self._held = data[end:]
        for payload in forms.payloads(data[:end]):
            if payload == b"[DONE]":
                return
            try:
                event = _decode(payload)
                for choice in event["choices"]:
                    done = self._read_piece(choice, event)
                    if done is not None:
                        yield done
            except (msgspec.DecodeError, KeyError, TypeError) as error:
                raise Unreadable("an event that is no piece of a completion") from error

    def _read_piece(self, choice: Object, event: Object) -> Done | None:
        index = choice["index"]
        ids = choice.get("token_ids")
        if ids is None:
            raise Uncounted("no token ids")
        if choice.get("prompt_token_ids") is not None:
            self._prompt_tokens[index] = len(choice["prompt_token_ids"])
        self._tokens[index] = self._tokens.get(index, 0) + len(ids)
        self._texts.setdefault(index, []).append(choice["text"])
        if not choice.get("finish_reason"):
            return None
        if index not in self._prompt_tokens:
            raise Uncounted("no token ids of the prompt")
        text = "".join(self._texts.pop(index))
        return Done(
            index,
            forms.completion_choice(index, text, choice),
            self._prompt_tokens[index],
            self._tokens[index],
            event,
        )


def answer_to(done: Sequence[Done], first: int) -> bytes:
    """The answer to one request: to all of its prompts, in their order. `first`: sets ids apart."""
    start = done[0].start
    prompt = sum(each.prompt_tokens for each in done)
    completion = sum(each.completion_tokens for each in done)
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
    choices = [{**each.choice, "index": index} for index, each in enumerate(done)]
    return forms.whole({**start, "id": f"{start['id']}-{first}"}, choices, usage)
