"""Event streams: a strict parser by the WHATWG's rules, and a recorder that keeps every byte with its time.

Source of the rules: HTML Standard, 9.2.6 "Interpreting an event stream".
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import Any

import msgspec

from tests.drivers.framing import Data, End, FramingError, Head, ResponseParser
from tests.drivers.raw import connected, request

_LINE_END = re.compile("[\r\n]")


@dataclass(frozen=True, slots=True)
class Event:
    data: str
    kind: str
    """`message` where the stream names none."""
    at_s: float
    """When it was complete, on the monotonic clock."""


class EventParser:
    """Takes bytes as they come, cut anywhere. Raises UnicodeDecodeError on what is no UTF-8."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self._decode = codecs.getincrementaldecoder("utf-8")("strict")
        self._text = ""
        self._first = True
        self._after_cr = False
        self._data: list[str] = []
        self._kind = ""

    @property
    def rest(self) -> str:
        """What has come and completes no event."""
        return self._text + "".join(self._data)

    def feed(self, data: bytes, now: float) -> list[Event]:
        text = self._decode.decode(data)
        if self._first and text:
            text, self._first = text.removeprefix("\ufeff"), False
        self._text += text
        events = []
        while (line := self._line()) is not None:
            event = self._take(line, now)
            if event is not None:
                events.append(event)
        return events

    def _line(self) -> str | None:
        if self._after_cr and self._text:
            self._text, self._after_cr = self._text.removeprefix("\n"), False
        found = _LINE_END.search(self._text)
        if found is None:
            return None
        line, self._text = self._text[: found.start()], self._text[found.end() :]
        self._after_cr = found[0] == "\r"
        return line

    def _take(self, line: str, now: float) -> Event | None:
        if not line:
            data, kind = self._data, self._kind
            self._data, self._kind = [], ""
            return Event("\n".join(data), kind or "message", now) if data else None
        if line.startswith(":"):
            self.comments.append(line[1:].removeprefix(" "))
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        return None


class Ended(Enum):
    """How a stream ended."""

    WHOLE = auto()
    """As an HTTP message should."""
    BROKEN = auto()
    """In the middle of the HTTP message."""
    RESET = auto()


@dataclass(slots=True)
class Recorded:
    """A stream as it was received."""

    head: Head | None = None
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    """Content (without chunk framing) with the time of each read."""
    events: list[Event] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    ended: Ended = Ended.WHOLE
    rest: str = ""
    """Content at the end that completes no event."""
    began_s: float = 0.0

    @property
    def status(self) -> int:
        assert self.head is not None, "no head was received"
        return self.head.status

    @property
    def content(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    @property
    def data(self) -> list[str]:
        return [event.data for event in self.events]

    @property
    def done(self) -> bool:
        """Whether it says itself that it is whole."""
        return bool(self.events) and self.events[-1].data == "[DONE]"

    def json(self) -> list[Any]:
        """The events but `[DONE]`, decoded. Raises if one is no JSON."""
        return [msgspec.json.decode(data) for data in self.data if data != "[DONE]"]

    @property
    def errors(self) -> list[Any]:
        return [event["error"] for event in self.json() if isinstance(event, dict) and "error" in event]

    def text(self, index: int = 0) -> str:
        """What was said, of one choice."""
        said = []
        for event in self.json():
            for choice in event.get("choices", ()):
                if choice["index"] == index:
                    said.append(choice["text"] if "text" in choice else choice["delta"].get("content") or "")
        return "".join(said)

    @property
    def longest_gap_s(self) -> float:
        """Between two reads."""
        times = [at for at, _ in self.reads]
        return max((b - a for a, b in pairwise(times)), default=0.0)


async def record(
    url: str,
    path: str,
    body: dict[str, Any],
    headers: Iterable[tuple[str, str]] = (),
    read_size: int = 65_536,
) -> Recorded:
    """Ask for a stream and read it to its end, however it ends. Raises FramingError for illegal framing."""
    recorded = Recorded(began_s=time.monotonic())
    parser, events = ResponseParser(), EventParser()
    async with connected(url) as peer:
        await peer.send(request(path, body, headers=headers))
        while not parser.ended:
            try:
                data = await peer.receive(read_size)
            except ConnectionResetError:
                recorded.ended = Ended.RESET
                break
            try:
                parts = parser.feed(data) if data else parser.eof()
            except FramingError:
                if data:
                    raise
                recorded.ended = Ended.BROKEN
                break
            now = time.monotonic()
            for part in parts:
                match part:
                    case Head() if part.status >= 200:
                        recorded.head = part
                    case Data():
                        recorded.reads.append((now, part.content))
                        recorded.events += events.feed(part.content, now)
                    case Head() | End():
                        pass
    recorded.comments = events.comments
    recorded.rest = events.rest
    return recorded
