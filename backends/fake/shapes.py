"""The JSON of vLLM 0.32's answers, with its fields in its order. Pure.

Source: `vllm/entrypoints/openai/{completion,chat_completion}/{protocol,serving}.py` and
`vllm/entrypoints/serve/engine/protocol.py` of that release. Plain answers carry every field, nulls
included; events of a stream only those that vLLM sets.
"""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]

FINGERPRINT = "vllm-0.32.0-fake0000"


def usage(prompt_tokens: int, completion_tokens: int) -> JsonObject:
    """The short form, as it stands in events."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def full_usage(prompt_tokens: int, completion_tokens: int) -> JsonObject:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def completion_choice(
    index: int,
    text: str,
    finish_reason: str,
    stop_reason: str | None,
    logprobs: JsonObject | None,
    token_ids: list[int] | None,
    prompt_logprobs: list[Any] | None,
    prompt_token_ids: list[int] | None,
) -> JsonObject:
    return {
        "index": index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": token_ids,
        "prompt_logprobs": prompt_logprobs,
        "prompt_token_ids": prompt_token_ids,
        "routed_experts": None,
    }


def completion(
    name: str, created: int, model: str, choices: list[JsonObject], counts: JsonObject
) -> JsonObject:
    return {
        "id": name,
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": counts,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def chat_choice(
    index: int,
    text: str,
    finish_reason: str,
    stop_reason: str | None,
    logprobs: JsonObject | None,
    token_ids: list[int] | None,
) -> JsonObject:
    return {
        "index": index,
        "message": {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": token_ids,
        "routed_experts": None,
    }


def chat(
    name: str,
    created: int,
    model: str,
    choices: list[JsonObject],
    counts: JsonObject,
    prompt_logprobs: list[Any] | None,
    prompt_token_ids: list[int] | None,
) -> JsonObject:
    return {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": counts,
        "prompt_logprobs": prompt_logprobs,
        "prompt_token_ids": prompt_token_ids,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def event(name: str, kind: str, created: int, model: str, choices: list[JsonObject]) -> JsonObject:
    """An event of a stream; `kind` is `text_completion` or `chat.completion.chunk`."""
    return {"id": name, "object": kind, "created": created, "model": model, "choices": choices}


def completion_delta(
    index: int,
    text: str,
    finish_reason: str | None,
    stop_reason: str | None,
    logprobs: JsonObject | None,
    prompt_token_ids: list[int] | None,
    token_ids: list[int] | None,
) -> JsonObject:
    return {
        "index": index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "prompt_token_ids": prompt_token_ids,
        "token_ids": token_ids,
    }


def chat_delta(
    index: int,
    text: str,
    finish_reason: str | None,
    stop_reason: str | None,
    logprobs: JsonObject | None,
    token_ids: list[int] | None,
) -> JsonObject:
    choice: JsonObject = {
        "index": index,
        "delta": {"content": text},
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    if finish_reason is not None:
        choice["stop_reason"] = stop_reason
    choice["token_ids"] = token_ids
    return choice


def error(status: int, message: str, kind: str, param: str | None = None) -> JsonObject:
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def models(names: list[str], created: int, max_model_len: int) -> JsonObject:
    return {"object": "list", "data": [_model(name, created, max_model_len) for name in names]}


def _model(name: str, created: int, max_model_len: int) -> JsonObject:
    permission = {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
