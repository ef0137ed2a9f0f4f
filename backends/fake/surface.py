"""The paths of vLLM that need no generation: models, tokens, embeddings, health, metrics. Pure.

`surface_reply` also says 404 and 405 as vLLM does for what it does not serve.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import Any

import msgspec

from backends.fake import control, metrics, shapes
from backends.fake.asks import Refusal
from backends.fake.behaviour import Behaviour
from backends.fake.record import Request
from backends.fake.reply import Reply, error_reply, json_reply
from backends.fake.words import Prompt, detokenize, prompt_ids

ENGINE_VERSION = "0.32.0"
GENERATE = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/responses"})
METHODS: dict[str, tuple[str, ...]] = {
    **control.METHODS,
    **dict.fromkeys((*GENERATE, "/v1/embeddings", "/tokenize", "/detokenize"), ("POST",)),
    **dict.fromkeys(("/v1/models", "/health", "/version", "/metrics", "/load"), ("GET",)),
    "/ping": ("GET", "POST"),
}
_EMBEDDING_SIZE = 8


class _Input(msgspec.Struct):
    model: str | None = None
    input: Any = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tokens: list[int] | None = None
    encoding_format: str = "float"
    return_token_strs: bool | None = None


def refused(request: Request) -> Reply | None:
    """404, 405 or the refusal of a body that is not JSON; None for what is served."""
    allowed = METHODS.get(request.path)
    if allowed is None:
        return error_reply(404, "Not Found")
    if request.method not in allowed and not (
        request.method == "HEAD" and request.path in ("/health", "/ping")
    ):
        reply = error_reply(405, "Method Not Allowed")
        return Reply(reply.status, reply.body, reply.content_type, (("allow", ", ".join(allowed)),))
    wants_json = request.path in GENERATE or request.path in ("/v1/embeddings", "/tokenize", "/detokenize")
    content_type = (request.header("content-type") or "").split(";")[0].strip().lower()
    if wants_json and content_type != "application/json":
        return error_reply(
            400, "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        )
    return None


def surface_reply(
    request: Request,
    behaviour: Behaviour,
    models: list[str],
    counters: metrics.Counters,
    created: int,
    weights: str,
) -> Reply:
    """The answer to a path that is served and is neither generation nor control."""
    path = request.path
    if path in ("/health", "/ping"):
        return Reply()
    if path == "/version":
        return json_reply({"version": ENGINE_VERSION})
    if path == "/load":
        return json_reply({"server_load": counters.running + counters.waiting})
    if path == "/metrics":
        return Reply(200, metrics.exposition(behaviour.model, counters), metrics.CONTENT_TYPE)
    if path == "/v1/models":
        return json_reply(shapes.models(models, created, behaviour.max_model_len))
    try:
        given = msgspec.json.decode(request.body, type=_Input)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"1 validation error:\n  {error}", "Bad Request", "body") from error
    if path == "/tokenize":
        return _tokenize(given, behaviour)
    if path == "/detokenize":
        return json_reply({"prompt": detokenize(given.tokens or [], weights)})
    return _embeddings(given, behaviour, request.name, created)


def _tokenize(given: _Input, behaviour: Behaviour) -> Reply:
    if given.messages is not None:
        text = "".join(f"<|{m.get('role', '')}|>{m.get('content', '')}\n" for m in given.messages)
    elif given.prompt is not None:
        text = given.prompt
    else:
        raise Refusal(400, "1 validation error:\n  prompt: Field required", "Bad Request", "body.prompt")
    tokens = list(text.encode())
    return json_reply(
        {
            "count": len(tokens),
            "max_model_len": behaviour.max_model_len,
            "tokens": tokens,
            "token_strs": [detokenize([token]) for token in tokens] if given.return_token_strs else None,
        }
    )


def _embeddings(given: _Input, behaviour: Behaviour, name: str, created: int) -> Reply:
    inputs: list[Prompt]
    if isinstance(given.input, str) and given.input:
        inputs = [given.input]
    elif isinstance(given.input, list) and given.input:
        if all(type(item) is int for item in given.input):
            inputs = [tuple(given.input)]
        else:
            inputs = [item if isinstance(item, str) else tuple(item) for item in given.input]
    else:
        raise Refusal(400, "1 validation error:\n  input: Field required", "Bad Request", "body.input")
    count = sum(len(prompt_ids(item)) for item in inputs)
    data = [
        {"index": at, "object": "embedding", "embedding": _embedding(item, given.encoding_format)}
        for at, item in enumerate(inputs)
    ]
    return json_reply(
        {
            "id": f"embd-{name or 'fake'}",
            "object": "list",
            "created": created,
            "model": given.model or behaviour.model,
            "data": data,
            "usage": {
                "prompt_tokens": count,
                "total_tokens": count,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
        }
    )


def _embedding(item: Prompt, encoding: str) -> list[float] | str:
    state = zlib.crc32(repr(item).encode())
    values = [((state >> (at * 4)) & 15) / 16 for at in range(_EMBEDDING_SIZE)]
    if encoding == "base64":
        return b64encode(struct.pack(f"<{_EMBEDDING_SIZE}f", *values)).decode()
    return values
