"""How the fake engine behaves, as data: what every field means, and which answer a request gets.

`Behaviour` describes the whole process and how generation requests are answered; its `rules` pick out
requests (by path, by bytes in the body, by how many came before) that are answered otherwise. The first
rule that matches wins and replaces the default answer completely: fields that it leaves out have their own
defaults, not those of the `Behaviour`. Health, metrics, models and control paths are touched only by rules
that name them. All of it is frozen, decodes from JSON, and refuses unknown fields.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

WORK_PATHS = frozenset(
    {"/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/tokenize", "/detokenize"}
)
"""The paths that the default answer is for."""


class Ending(StrEnum):
    """How an answer is cut short."""

    RESET = "reset"
    """The connection is reset (RST). On a Unix socket: closed."""
    CLOSE = "close"
    """The connection is closed in order, in the middle of the message (no last chunk)."""
    END = "end"
    """The HTTP message ends as it should, but its content is not whole (no `[DONE]`)."""
    SILENCE = "silence"
    """Nothing more is ever sent; the connection stays open."""
    ERROR_EVENT = "error_event"
    """A stream ends as vLLM's do when the engine fails: `data: {"error": ...}`, then `[DONE]`."""
    DIE = "die"
    """The whole process dies: every connection is reset and the port is closed."""


class Point(StrEnum):
    """Where an answer is cut short."""

    NOTHING = "nothing"
    """Before any byte of it."""
    HEAD = "head"
    """After its status line and headers."""
    CHUNKS = "chunks"
    """After `count` chunks (events of a stream; a plain body is one)."""
    BYTES = "bytes"
    """After `count` bytes of its body."""


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer that is cut short. A control call that is cut has had its effect."""

    how: Ending
    after: Point = Point.HEAD
    count: Count = 0
    message: str = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    """The message of an `error_event`."""


class Framing(StrEnum):
    """How the length of an answer's body is told."""

    AUTO = "auto"
    """`Content-Length` for plain bodies, chunked for streams."""
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    """Not at all: the connection closes at its end."""


class Say(StrEnum):
    """What the text of an answer is made of."""

    WORDS = "words"
    """Words that follow from prompt, weights, seed and choice; the weights' name, if any, comes first."""
    PROMPT = "prompt"
    """The prompt, in pieces of four characters (of a chat the last message; token ids joined by commas)."""


class LineEnd(StrEnum):
    """How lines of an event stream end."""

    LF = "lf"
    CRLF = "crlf"
    CR = "cr"


class Pieces(StrEnum):
    """What `write_size` and `split_at` cut."""

    CHUNKS = "chunks"
    """The content: every piece is an HTTP chunk of its own."""
    WIRE = "wire"
    """The bytes on the wire: a piece may end inside a chunk's length line."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one request is answered."""

    # When
    delay_headers_s: Seconds = 0.0
    """Before the first byte of the answer, in front of the engine's queue."""
    delay_first_chunk_s: Seconds = 0.0
    """The first token: after the head of a stream; a plain answer as a whole comes this much later."""
    tokens_per_s: Seconds = 0.0
    """Speed of each choice after its first token. 0: all at once."""

    # What
    tokens: Count | None = None
    """Tokens of each choice, whatever `max_tokens` says. None: as many as `max_tokens`."""
    tokens_step: Count = 0
    """Prompt i of a list gets i times this many more, so that prompts end at different times."""
    say: Say = Say.WORDS
    text: str | None = None
    """Say this, in pieces of four characters."""
    multibyte: bool = False
    """Words are of characters that take two to four bytes in UTF-8."""
    event_bytes: Count = 0
    """Every token is filled up to this many bytes (1 MB events; times `tokens`: answers of any size)."""
    finish_reason: str | None = None
    """Default: `length` where `max_tokens` was reached, else `stop`."""
    empty_choices: bool = False
    """The answer holds no choice at all."""

    # Status, headers, body
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] = 200
    """Other than 200: the request has no effect, and the body is an error as vLLM words it, or `body`."""
    body: str | None = None
    """The exact body, of a stream as well (which then is none)."""
    body_bytes: Count = 0
    """A body of this many letters, written as fast as the reader takes it."""
    content_type: str | None = None
    """Default: what vLLM says; none at all where it is the empty string."""
    headers: dict[str, str] = {}
    """More headers, hop-by-hop ones and `Retry-After` included."""
    gzip: bool = False
    """The body is gzipped, whether or not the caller accepts that."""
    framing: Framing = Framing.AUTO
    length_error: int = 0
    """Added to `Content-Length`: a lie."""
    interim: Annotated[int, msgspec.Meta(ge=100, le=199)] | None = None
    """An informational answer (100, 102, 103) that is sent first."""
    early: bool = False
    """Answer as soon as the request's head is there; the rest of its body is read and dropped."""
    close: bool = False
    """Say `Connection: close` and close after the answer."""

    raw: str | None = None
    """These bytes (Latin-1) in place of the whole answer, status line and headers included."""
    trailing: str | None = None
    """These bytes (Latin-1) after the answer, where nothing may come."""

    # How a stream is written
    write_size: Count = 0
    """Cut into writes of this many bytes (1: at every byte). 0: a write for each event."""
    split_at: Count | None = None
    """Cut into two writes at this offset, counted over the whole stream."""
    write_gap_s: Seconds = 0.001
    """Between writes that `write_size` or `split_at` made, so that the reader sees them apart."""
    pieces: Pieces = Pieces.CHUNKS
    line_end: LineEnd = LineEnd.LF
    space_after_colon: bool = True
    """`data: x`, or `data:x`."""
    comment_every: Count = 0
    """A comment line (`: fake`) in front of every so many events. 0: none."""
    keep_alive_s: Seconds = 0.0
    """A comment (`: keep-alive`) after each so many seconds without an event, as vLLM's
    `--sse-keep-alive-interval` sends, also while the request is queued and in a cut's silence. 0: none."""

    cut: Cut | None = None
    """Cut the answer short."""


class Rule(Answer, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer for the requests that match all that is given here."""

    paths: tuple[str, ...] = ()
    """Paths without query; one that ends in `*` stands for all that begin so. None: the generation paths."""
    contains: str | None = None
    """This stands in the body as it was sent. Not together with `early`."""
    first: Count | None = None
    """Only the first so many of the requests that match otherwise ("fail n times, then heal")."""
    probability: Share = 1.0
    """Only this share of them, drawn from the behaviour's `seed`."""

    def takes(self, path: str, body: bytes) -> bool:
        """Whether path and body match; counts and chance are `Choice`'s."""
        if self.paths:
            if not any(path == p or (p.endswith("*") and path.startswith(p[:-1])) for p in self.paths):
                return False
        elif path not in WORK_PATHS:
            return False
        return self.contains is None or self.contains.encode() in body


class Behaviour(Answer, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole fake engine. The fields of `Answer` here are the default answer of the generation paths."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0
    """Of the chance in `Rule.probability`."""
    model: str = "fake"
    """The model's name in `/v1/models` and where a request names none."""
    strict_model: bool = False
    """Refuse other names with 404, as vLLM does. Else every name is answered."""
    max_model_len: Annotated[int, msgspec.Meta(ge=1)] = 131_072
    """Longest prompt in tokens; a longer one is refused with 400."""
    version: str = ""
    """Weights and label at the start, and anew at each change of behaviour that changes it."""
    announce_version: bool = True
    """Answers carry `x-model-version`, as those of our guard do."""
    slots: Count = 0
    """Requests computed at a time; others wait in order of arrival, as in an engine. 0: all."""
    idle_limit_s: Seconds = 5.0
    """Idle connections are closed after exactly this time (vLLM: 5 s). 0: never."""
    deaf: bool = False
    """Connections are accepted and never read (the control port stays open)."""
    frozen_counters: bool = False
    """The token counters of `/metrics` stand still."""
    reset_prefix_cache_succeeds: bool = True
    """Else `/reset_prefix_cache` answers 200 with `{"success": false}`."""
    control_token: str | None = None
    """Control paths answer 404 to callers without this token."""
    fixed: bool = False
    """Plain completions all get one answer made beforehand: for load tests."""


DEFAULT_ANSWER = Answer()


class Choice:
    """Chooses the answer for each request: rules in order, their counts and their dice."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self._used = [0] * len(behaviour.rules)
        self._random = Random(behaviour.seed)  # failures are drawn, not secrets

    def answer_for(self, path: str, body: bytes) -> Answer:
        """The answer for a request that is there as a whole, and got no early one."""
        rule = self._rule(path, body, early=False)
        if rule is not None:
            return rule
        return self.behaviour if path in WORK_PATHS else DEFAULT_ANSWER

    def early_answer_for(self, path: str) -> Answer | None:
        """The answer for a request of which only the head is known, if one is to be given already."""
        rule = self._rule(path, b"", early=True)
        if rule is not None:
            return rule
        return self.behaviour if self.behaviour.early and path in WORK_PATHS else None

    def _rule(self, path: str, body: bytes, *, early: bool) -> Rule | None:
        for index, rule in enumerate(self.behaviour.rules):
            if rule.early is not early or not rule.takes(path, body):
                continue
            if rule.first is not None and self._used[index] >= rule.first:
                continue
            if rule.probability < 1 and self._random.random() >= rule.probability:
                continue
            self._used[index] += 1
            return rule
        return None


def decode_behaviour(data: bytes | str) -> Behaviour:
    """Behaviour from JSON. Raises `msgspec.ValidationError` that names the wrong field."""
    return msgspec.json.decode(data, type=Behaviour)
