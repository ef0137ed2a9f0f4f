"""One answer in two forms: vLLM's JSON object and its event stream, each made from the other. Pure.

Field by field as vLLM 0.32 writes them (`vllm/entrypoints/openai/{completion,chat_completion}/serving.py`
and `protocol.py`); an answer that holds anything else (log probabilities, tool calls, reasoning, token ids)
is not translated: the functions then return None, and the engine is asked. What an answer says of itself
(`id`, `created`) stays as it was when it was computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.flow.cache.key import Form
from gateway.http.sse import DONE

FINISHED = frozenset(("stop", "length"))
"""How an answer ends that is whole. Others (`abort`, `error`, `tool_calls`) are not kept."""

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_CHOICE_KEYS = frozenset(
    (
        *("index", "text", "message", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"),
        *("prompt_logprobs", "prompt_token_ids", "routed_experts"),
    )
)
_SAID = frozenset(("index", "text", "message", "delta", "finish_reason", "stop_reason"))
_SPOKEN = frozenset(("role", "content"))
_USAGE_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


def payloads(events: bytes) -> Iterator[bytes]:
    """The data of each whole event; comments and other fields are left out."""
    for block in events.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if lines:
            yield b"\n".join(lines)


def is_whole(body: bytes, form: Form) -> bool:
    """Whether an answer is complete and successful: choices, each of them finished, and no error."""
    try:
        if form is Form.WHOLE:
            answer = _decode(body)
            return "error" not in answer and _all_finished(answer["choices"])
        found = list(payloads(body))
        if not found or found[-1] != b"[DONE]":
            return False
        ends: dict[int, str | None] = {}
        for payload in found[:-1]:
            event = _decode(payload)
            if "error" in event:
                return False
            for choice in event.get("choices", ()):
                ends[choice["index"]] = choice.get("finish_reason") or ends.get(choice["index"])
        return bool(ends) and FINISHED.issuperset(ends.values())
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return False


def _all_finished(choices: list[Object]) -> bool:
    return bool(choices) and all(choice["finish_reason"] in FINISHED for choice in choices)


def translate(body: bytes, kept: Form, wanted: Form, *, chat: bool) -> bytes | None:
    """The answer in the form that is wanted; None if that cannot be told from what was kept."""
    if kept is wanted:
        return body
    try:
        if kept is Form.WHOLE:
            return _to_stream(_decode(body), wanted, chat) if wanted is not Form.STREAM_WITH_USAGES else None
        if wanted is Form.WHOLE and kept is not Form.STREAM:
            return _to_whole(body, chat)
        if kept is Form.STREAM_WITH_USAGE and wanted is Form.STREAM:
            return _without_usage(body)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        pass
    return None


# JSON to stream


def _to_stream(answer: Object, wanted: Form, chat: bool) -> bytes | None:
    with_usage = wanted is Form.STREAM_WITH_USAGE
    kind = "chat.completion.chunk" if chat else "text_completion"
    start = {
        "id": answer["id"],
        "object": kind,
        "created": answer["created"],
        "model": answer["model"],
    }
    fingerprint = answer.get("system_fingerprint")
    events = []
    for choice in answer["choices"]:
        if not _is_plain(choice):
            return None
        if chat:
            opening = {
                "index": choice["index"],
                "delta": {"role": choice["message"]["role"], "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
            events.append({**start, "choices": [opening], "prompt_token_ids": None, "prompt_text": None})
    for choice in answer["choices"]:
        event = {**start, "choices": [_piece(choice, chat)]}
        if fingerprint is not None and not with_usage:
            event["system_fingerprint"] = fingerprint
        events.append(event)
    if with_usage:
        counts = {name: value for name, value in answer["usage"].items() if value is not None}
        last = {**start, "choices": [], "usage": counts}
        if fingerprint is not None:
            last["system_fingerprint"] = fingerprint
        events.append(last)
    return b"".join(b"data: %b\n\n" % _encode(event) for event in events) + DONE


def _piece(choice: Object, chat: bool) -> Object:
    if chat:
        return {
            "index": choice["index"],
            "delta": {"content": choice["message"]["content"]},
            "logprobs": None,
            "finish_reason": choice["finish_reason"],
            "stop_reason": choice.get("stop_reason"),
            "token_ids": None,
        }
    return {
        "index": choice["index"],
        "text": choice["text"],
        "logprobs": None,
        "finish_reason": choice["finish_reason"],
        "stop_reason": choice.get("stop_reason"),
        "prompt_token_ids": None,
        "token_ids": None,
    }


def _is_plain(choice: Object) -> bool:
    """Whether text is all that it holds."""
    if not choice.keys() <= _CHOICE_KEYS:
        return False
    if any(value is not None for name, value in choice.items() if name not in _SAID):
        return False
    spoken = choice.get("message") or choice.get("delta") or {}
    return all(name in _SPOKEN or value is None or value == [] for name, value in spoken.items())


# Stream to JSON


def _to_whole(body: bytes, chat: bool) -> bytes | None:
    answer: Object = {}
    texts: dict[int, str] = {}
    roles: dict[int, str] = {}
    ends: dict[int, Object] = {}
    for payload in payloads(body):
        if payload == b"[DONE]":
            break
        event = _decode(payload)
        answer.update((name, event[name]) for name in ("usage", "system_fingerprint") if event.get(name))
        answer.update((name, event[name]) for name in ("id", "created", "model"))
        for choice in event["choices"]:
            if not _is_plain(choice):
                return None
            index = choice["index"]
            said = choice["delta"] if chat else {"content": choice["text"]}
            texts[index] = texts.get(index, "") + (said.get("content") or "")
            roles[index] = said.get("role") or roles.get(index, "assistant")
            if choice.get("finish_reason"):
                ends[index] = choice
    if "usage" not in answer or not texts or ends.keys() != texts.keys():
        return None
    choices = [
        chat_choice(index, roles[index], texts[index], ends[index])
        if chat
        else completion_choice(index, texts[index], ends[index])
        for index in sorted(texts)
    ]
    return whole(answer, choices, answer["usage"], chat=chat)


def completion_choice(index: int, text: str, end: Object) -> Object:
    """A choice of a whole completion; `end` is its last piece."""
    return {
        "index": index,
        "text": text,
        "logprobs": None,
        "finish_reason": end["finish_reason"],
        "stop_reason": end.get("stop_reason"),
        "token_ids": None,
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "routed_experts": None,
    }


def chat_choice(index: int, role: str, text: str, end: Object) -> Object:
    """A choice of a whole chat answer; `end` is its last piece."""
    return {
        "index": index,
        "message": {
            "role": role,
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": None,
        "finish_reason": end["finish_reason"],
        "stop_reason": end.get("stop_reason"),
        "token_ids": None,
        "routed_experts": None,
    }


def whole(start: Object, choices: list[Object], usage: Object, *, chat: bool = False) -> bytes:
    """A whole answer. `start`: its id, created, model and, if known, system_fingerprint."""
    answer: Object = {
        "id": start["id"],
        "object": "chat.completion" if chat else "text_completion",
        "created": start["created"],
        "model": start["model"],
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": start.get("system_fingerprint"),
        "usage": {**usage, **{name: usage.get(name) for name in _USAGE_DETAILS}},
    }
    if chat:
        answer |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
    answer |= {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
    return _encode(answer)


def _without_usage(body: bytes) -> bytes | None:
    """The stream that was not asked to count: the fingerprint then stands in each choice's last event."""
    events = [_decode(payload) for payload in payloads(body) if payload != b"[DONE]"]
    fingerprint = next((e["system_fingerprint"] for e in events if e.get("system_fingerprint")), None)
    kept = [event for event in events if event["choices"]]
    for event in kept:
        if fingerprint is not None and any(choice.get("finish_reason") for choice in event["choices"]):
            event["system_fingerprint"] = fingerprint
    return b"".join(b"data: %b\n\n" % _encode(event) for event in kept) + DONE
