"""What must be true of every answer. Pure.

The fake's text follows from prompt, seed, number of tokens and weights, and begins with the name of these.
So whoever knows what was asked knows every answer that may be given, byte for byte, and one of other
weights, of other parameters or for somebody else stands out.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from backends.fake import Behaviour
from backends.fake.words import generate
from backends.versions import number_of
from gateway.fleet.member import UNVERSIONED
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord
from tests.abuse.client import Ended, Seen, prompts_of
from tests.abuse.steps import BAD, Ask, Client
from tests.drivers.sse import EventParser

STATUSES = frozenset({200, 400, 404, 429, 500, 502, 503, 504})
"""400, 429 and 500 are the engines' own, and pass through."""
GRACE_S = 10.0
"""After its deadline a request ends at once; so much is left to a machine that is busy."""
GZIP = 31
"""How zlib names the format."""
STRANGER = "stranger"
"""Weights of an engine that is none of ours."""

Key = tuple[Any, ...]


@dataclass(slots=True)
class Said:
    """An answer's content."""

    texts: dict[int, str] = field(default_factory=dict)
    """By prompt."""
    versions: set[str] = field(default_factory=set)
    """What the body of `/predict` names."""
    whole: bool = False
    """By its own word."""
    errors: list[str] = field(default_factory=list)
    named: str = ""
    """The weights that a comment of a stream names whose head had to go out before they were known."""


@dataclass(slots=True)
class Book:
    """What was asked so far: who may have been given a kept answer."""

    asked: Counter[Key] = field(default_factory=Counter)

    def note(self, ask: Ask) -> None:
        """Before it is sent."""
        self.asked.update(_keys(ask))

    def may_share(self, ask: Ask) -> bool:
        """Whether its tenant has asked the same more than once by now."""
        return all(self.asked[key] > 1 for key in _keys(ask))


def expected(ask: Ask, label: str) -> list[str]:
    """What these weights say to each prompt."""
    prompts = prompts_of(ask)
    if ask.form.startswith("chat"):
        prompts = [f"<|user|>{prompt}\n" for prompt in prompts]
    return [
        "".join(t.text for t in generate(Behaviour(), prompt, "", label, ask.seed, 0, ask.tokens))
        for prompt in prompts
    ]


def judge(ask: Ask, seen: Seen, book: Book) -> list[str]:
    """What is wrong with an answer. A client that left has seen none."""
    wrong = []
    if seen.took_s > ask.limit_s + GRACE_S:
        wrong.append(f"took {seen.took_s:.1f} s, its limit was {ask.limit_s:g} s")
    if seen.ended is Ended.ILLEGAL:
        return [*wrong, f"no HTTP: {seen.fault}"]
    if seen.head is None or ask.client in (Client.LEAVES, Client.LEAVES_AT_ONCE, Client.RESETS):
        return wrong
    if seen.status not in STATUSES:
        wrong.append(f"status {seen.status}")
    if seen.status != 200:
        return [*wrong, *_refusal(seen)]
    return wrong + _answer(ask, seen, book)


def failed(ask: Ask, seen: Seen) -> bool:
    """Whether a client that reads to the end got no whole answer."""
    if ask.client not in (Client.READS, Client.SLOWLY):
        return False
    return seen.status != 200 or seen.ended is not Ended.WHOLE or not said(ask, seen).whole


def account(ask: Ask, seen: Seen, records: list[RequestRecord]) -> list[str]:
    """What is wrong with how it was counted. `records`: all that bear its id."""
    left = seen.ended is Ended.LEFT
    if len(records) > 1 or (not records and not left and seen.head is not None):
        return [f"{len(records)} records: {[record.outcome for record in records]}"]
    if not records:
        return []
    (record,) = records
    if record.outcome is Outcome.INTERNAL_ERROR:
        return [f"internal error: {record.error}"]
    if left or seen.head is None:
        return []
    fine = not failed(ask, seen)
    if fine != (record.outcome is Outcome.OK):
        content = bytes(seen.content[-200:])
        return [f"ended {seen.ended.name} with {seen.status}, counted as {record.outcome}: {content!r}"]
    label = label_of(seen, said(ask, seen))
    if fine and record.version != label:
        return [f"says {label!r}, counted for {record.version!r}"]
    return []


def said(ask: Ask, seen: Seen) -> Said:
    """The content, whichever form it has. What cannot be read is an answer that is not whole."""
    found = Said()
    try:
        content = _decoded(seen)
        if ask.form.endswith("stream"):
            _read_stream(content, found)
        else:
            _read_body(msgspec.json.decode(content), found)
    except (msgspec.DecodeError, UnicodeError, LookupError, TypeError, zlib.error) as error:
        found.whole = False
        found.errors.append(f"cannot be read: {error!r}")
    return found


def _decoded(seen: Seen) -> bytes:
    """The content without its encoding, of a part as much as can be had."""
    content = bytes(seen.content)
    return (
        zlib.decompressobj(GZIP).decompress(content) if seen.header("content-encoding") == "gzip" else content
    )


def label_of(seen: Seen, found: Said) -> str:
    """The weights that an answer names, in its head or, where that went out early, later; empty: none."""
    return seen.header("x-model-version") or found.named or next(iter(found.versions), "")


def _refusal(seen: Seen) -> list[str]:
    if seen.ended is not Ended.WHOLE:
        return []
    if seen.status in (429, 503) and not seen.header("retry-after"):
        return [f"{seen.status} without Retry-After: {bytes(seen.content[:120])!r}"]
    return []


def _answer(ask: Ask, seen: Seen, book: Book) -> list[str]:
    found = said(ask, seen)
    label = label_of(seen, found)
    wrong = _version(ask, label) if found.texts else []
    if found.versions - {label}:
        wrong.append(f"the header says {label!r}, the body {found.versions}")
    due = expected(ask, STRANGER if label in ("", UNVERSIONED) else label)
    for index, text in found.texts.items():
        # A part of an answer must be its beginning.
        if index >= len(due) or not (text == due[index] if found.whole else due[index].startswith(text)):
            wrong.append(f"prompt {index}: {text!r} is not what {label!r} says: {due[index : index + 1]}")
    # An engine may say nothing at all, but that is not kept.
    if found.whole and len(found.texts) != len(due) and (found.texts or seen.header("x-cache") == "hit"):
        wrong.append(f"{len(found.texts)} answers to {len(due)} prompts")
    if found.whole and seen.ended is not Ended.WHOLE:
        wrong.append("says that it is whole, and the message is not")
    return wrong + _sharing(ask, seen, book)


def _version(ask: Ask, label: str) -> list[str]:
    number = number_of(label)
    wrong = []
    if number == BAD:
        wrong.append(f"{label} has passed no probe, and answers")
    if ask.wish.lstrip("v").isdecimal() and number != int(ask.wish.lstrip("v")):
        wrong.append(f"version {ask.wish} was asked for, {label!r} answers")
    if ask.least is not None and (number is None or number < ask.least):
        wrong.append(f"version {ask.least} or newer was asked for, {label!r} answers")
    return wrong


def _sharing(ask: Ask, seen: Seen, book: Book) -> list[str]:
    state = seen.header("x-cache")
    if state not in ("hit", "join"):
        return []
    if ask.control in ("no-store", "no-cache"):
        return [f"{state}, and it wants an answer of its own"]
    if ask.temperature != 0 and ask.seed is None and not ask.control:
        return [f"{state}, and its answer is not always the same"]
    if not book.may_share(ask):
        return [f"{state}, and this tenant has never asked that before"]
    return []


def _keys(ask: Ask) -> list[Key]:
    kind = "chat" if ask.form.startswith("chat") else "text"
    given = (ask.tenant, kind, ask.tokens, ask.temperature, ask.seed)
    return [(*given, prompt) for prompt in prompts_of(ask)]


def _read_body(body: dict[str, Any], found: Said) -> None:
    if "choices" in body:
        for choice in body["choices"]:
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            found.texts[choice["index"]] = text
    else:
        found.versions.add(body["version"])
        for output in body.get("outputs", [{"index": 0, **body}]):
            found.texts[output["index"]] = output["text"]
    found.whole = bool(found.texts)


def _read_stream(content: bytes, found: Said) -> None:
    parser = EventParser()
    events = parser.feed(content, 0.0)
    for comment in parser.comments:
        found.named = (
            comment.removeprefix("x-model-version: ") if "x-model-version" in comment else found.named
        )
    for event in events:
        if event.data == "[DONE]":
            found.whole = not found.errors
            continue
        data = msgspec.json.decode(event.data)
        if "error" in data:
            found.errors.append(str(data["error"]))
            continue
        if "version" in data:
            found.versions.add(data["version"])
        for choice in data.get("choices", [data] if "text" in data else []):
            text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            index = choice.get("index", 0)
            found.texts[index] = found.texts.get(index, "") + text
