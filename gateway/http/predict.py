"""`POST /predict`: its wire model, and what it becomes on an engine.

The answer's side is `gateway.http.predictions`. The model here is also the source of the documentation
of the route (`/docs`). Pure code.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import msgspec

from gateway.errors import BadRequest
from gateway.http.bodies import explain, read_object

DEFAULT_MAX_TOKENS = 128
"""The engine's own default for a prompt is 16, which cuts most answers short."""


def _doc(text: str, **limits: Any) -> Any:
    examples = limits.pop("examples", None)
    return msgspec.Meta(description=text, examples=examples, **limits)


class Message(msgspec.Struct):
    """One turn of a conversation, in OpenAI's form."""

    role: Annotated[str, _doc("Who speaks: `system`, `user` or `assistant`.")]
    content: Annotated[Any, _doc("What is said: text, or parts in OpenAI's form.")] = None


Prompt = str | list[str | int | list[int]]


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Give either `prompt` or `messages`; everything else has defaults."""

    prompt: Annotated[
        Prompt | None,
        _doc("A text, a list of texts, or their token ids.", examples=["Hello, world!", ["One", "Two"]]),
    ] = None
    messages: Annotated[
        list[dict[str, Any]] | None,
        _doc("A conversation, instead of a prompt.", examples=[[{"role": "user", "content": "Hello!"}]]),
    ] = None
    model: Annotated[str | None, _doc("Which model. Default: the first one configured.")] = None
    max_tokens: Annotated[int, _doc("Most tokens to generate for each prompt.", ge=1)] = DEFAULT_MAX_TOKENS
    temperature: Annotated[float, _doc("0 takes the likeliest token each time.", ge=0)] | None = None
    top_p: Annotated[float, _doc("Sample from the likeliest tokens that sum to this.", gt=0, le=1)] | None = (
        None
    )
    top_k: Annotated[int, _doc("Sample from this many likeliest; -1 or 0: all.", ge=-1)] | None = None
    stop: Annotated[str | list[str] | None, _doc("End before the first of these.")] = None
    seed: Annotated[int | None, _doc("The same seed gives the same answer.")] = None
    stream: Annotated[bool, _doc("Answer piece by piece, as server-sent events.")] = False
    timeout: Annotated[float, _doc("Seconds after which to give up.", gt=0)] | None = None
    cache: Annotated[
        bool | None,
        _doc(
            "true: an answer that was computed for an equal request will do, and this one may be kept. "
            "false: neither. Default: so for requests whose answer is always the same."
        ),
    ] = None
    parameters: Annotated[
        dict[str, Any],
        _doc("More parameters, as the engine knows them.", examples=[{"repetition_penalty": 1.1}]),
    ] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(PredictRequest).decode
_OURS = frozenset(("prompt", "messages", "model", "stream", "stream_options"))


class Usage(msgspec.Struct):
    """Tokens, as the engine counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class Output(msgspec.Struct):
    """The answer to one of several prompts."""

    index: Annotated[int, _doc("The prompt's place in the request.")]
    text: str
    finish_reason: str | None = None


class PredictResponse(msgspec.Struct, omit_defaults=True):
    """`text` and `finish_reason` for one prompt, `outputs` for a list. So are a stream's events."""

    id: str
    model: str
    version: Annotated[str, _doc("The weights that computed it.")]
    text: str | msgspec.UnsetType = msgspec.UNSET
    outputs: list[Output] | msgspec.UnsetType = msgspec.UNSET
    index: Annotated[int | msgspec.UnsetType, _doc("Streams of several prompts: which one.")] = msgspec.UNSET
    finish_reason: Annotated[
        str | msgspec.UnsetType | None, _doc("`stop`, `length`, or null while it goes on.")
    ] = msgspec.UNSET
    usage: Usage | msgspec.UnsetType = msgspec.UNSET
    cached: Annotated[bool | msgspec.UnsetType, _doc("Whether it came from the cache.")] = msgspec.UNSET


def read(body: bytes) -> PredictRequest:
    """Read and check a body. Raises BadRequest that names the field."""
    try:
        asked = _decode(body)
    except msgspec.ValidationError as error:
        raise _named(error, body) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        read_object(body)  # says what is wrong with it, if the engine's reader would say so too
        raise BadRequest(f"The request body is not valid JSON: {error}.") from error
    if (asked.prompt is None) == (asked.messages is None):
        raise BadRequest("Give either `prompt` or `messages`, and not both.", param="prompt")
    if asked.prompt is not None and len(asked.prompt) == 0:
        raise BadRequest("`prompt` is empty.", param="prompt")
    if asked.messages is not None and len(asked.messages) == 0:
        raise BadRequest("`messages` is empty.", param="messages")
    if isinstance(asked.prompt, list) and len({type(item) for item in asked.prompt}) > 1:
        raise BadRequest("`prompt` mixes texts and token ids.", param="prompt")
    taken = _OURS & asked.parameters.keys()
    if taken:
        raise BadRequest(f"`parameters` may not hold {', '.join(sorted(taken))}.", param="parameters")
    return asked


def _named(error: msgspec.ValidationError, body: bytes) -> BadRequest:
    known = PredictRequest.__struct_fields__
    for name in read_object(body):
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean `{near[0]}`?" if near else "Parameters of the engine go into `parameters`."
            return BadRequest(f"`{name[:100]}` is not a field of /predict. {hint}", param=name[:100])
    return explain(error)


def copies(asked: PredictRequest) -> int:
    """How many answers are generated: prompts times `n`."""
    prompt = asked.prompt
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    each = asked.parameters.get("n", 1)
    return prompts * (each if isinstance(each, int) and 0 < each < 1 << 16 else 1)


def is_many(asked: PredictRequest) -> bool:
    """Whether the answer is a list: several prompts (even a list of one), or several answers to one."""
    prompt = asked.prompt
    return copies(asked) > 1 or (isinstance(prompt, list) and not isinstance(prompt[0], int))


def prompt_bytes(asked: PredictRequest) -> bytes:
    """What is asked as bytes, equal for equal beginnings: for affinity and for estimates."""
    if isinstance(asked.prompt, str):
        return asked.prompt.encode()
    return msgspec.json.encode(asked.prompt if asked.prompt is not None else asked.messages)


def upstream(asked: PredictRequest) -> tuple[bytes, bytes]:
    """The engine's path and body."""
    fields: dict[str, Any] = {}
    if asked.model is not None:
        fields["model"] = asked.model
    if asked.messages is not None:
        path = b"/v1/chat/completions"
        fields["messages"] = asked.messages
    else:
        path = b"/v1/completions"
        fields["prompt"] = asked.prompt
    fields["max_tokens"] = asked.max_tokens
    for name in ("temperature", "top_p", "top_k", "stop", "seed"):
        value = getattr(asked, name)
        if value is not None:
            fields[name] = value
    if asked.stream:
        fields["stream"] = True
        fields["stream_options"] = {"include_usage": True}
    fields.update(asked.parameters)
    return path, msgspec.json.encode(fields)
