"""How a log line looks: from a stdlib record or from a request's record, for people or as JSON.

Times are UTC in ISO 8601 with milliseconds. A line is one line: control characters of a message are
escaped, only a traceback may follow on lines of its own (console). Pure but for the formatters' base class.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from gateway.observe.labels import Route
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord
from gateway.observe.redact import Redactor

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {10: r"\n", 13: r"\r", 9: r"\t"}

MAX_NAME = 200
"""A client's model name is cut here."""
MAX_ERROR = 300

REQUESTS_LOGGER = "gateway.requests"


class Clock:
    """Writes times; remembers the present second, since most lines share it. Not thread-safe: one each."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def iso(self, unix_ns: int) -> str:
        ms = unix_ns // 1_000_000
        second = ms // 1000
        if second != self._second:
            self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._second = second
        return f"{self._text}.{ms % 1000:03d}Z"


def _one_line(text: str) -> str:
    return text if text.isprintable() else text.translate(_ESCAPES)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _Formatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor
        # logging serialises calls of a handler, and so of its formatter.
        self._clock = Clock()

    def _trace(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else []
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(parts)


class ConsoleFormatter(_Formatter):
    """`2026-11-30T12:00:00.123Z INFO    gateway.fleet  A member left  member=a`"""

    def format(self, record: logging.LogRecord) -> str:
        time = self._clock.iso(int(record.created * 1e9))
        fields = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        line = _one_line(f"{time} {record.levelname:<7} {record.name}  {record.getMessage()}{fields}")
        trace = self._trace(record)
        return self._redactor(f"{line}\n{trace}" if trace else line)


class JsonFormatter(_Formatter):
    """One JSON object: time, level, logger, message, the extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self._clock.iso(int(record.created * 1e9)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor(record.getMessage()),
        }
        # Redacted before they are encoded: escapes would hide a secret with a quote in it.
        line |= {name: self._clean(value) for name, value in _fields(record).items()}
        trace = self._trace(record)
        if trace:
            line["exception"] = self._redactor(trace)
        return msgspec.json.encode(line).decode()

    def _clean(self, value: object) -> object:
        return value if isinstance(value, int | float | None) else self._redactor(str(value))


class _RequestLine(msgspec.Struct, omit_defaults=True):
    """One request as JSON; what is empty is left out. Times in milliseconds."""

    time: str
    level: str
    logger: str
    message: str
    request_id: str
    method: str
    route: Route
    status: int
    outcome: Outcome
    duration_ms: float
    model: str = ""
    member: str = ""
    version: str = ""
    ttft_ms: float | None = None
    queue_ms: float | None = None
    overhead_ms: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    cache: str = ""
    stream: bool = False
    client: str = ""
    tenant: str = ""
    error: str = ""
    traceparent: str = ""


def _ms(seconds: float | None) -> float | None:
    """Milliseconds, cut to whole microseconds (which takes a third of the time of `round`)."""
    return None if seconds is None else int(seconds * 1e6) / 1e3


class RequestLines:
    """Makes the line of a request. One for each thread that does."""

    def __init__(self, redactor: Redactor, *, json: bool) -> None:
        self._redactor = redactor
        self._clock = Clock()
        self._encoder = msgspec.json.Encoder()
        self._form = self._json if json else self._console

    def line(self, record: RequestRecord) -> bytes:
        """The line, with its newline."""
        return self._form(record)

    def _json(self, record: RequestRecord) -> bytes:
        line = _RequestLine(
            time=self._clock.iso(record.start_unix_ns + int(record.duration * 1e9)),
            level="info",
            logger=REQUESTS_LOGGER,
            message="request",
            request_id=self._redactor.known(record.request_id.decode("latin-1")),
            method=record.method,
            route=record.route,
            status=record.status,
            outcome=record.outcome,
            duration_ms=int(record.duration * 1e6) / 1e3,
            model=self._model(record),
            member=record.member,
            version=record.version,
            ttft_ms=_ms(record.ttft),
            queue_ms=_ms(record.queue),
            overhead_ms=_ms(record.overhead),
            prompt_tokens=record.prompt_tokens,
            completion_tokens=record.completion_tokens,
            retries=record.retries,
            cache=record.cache,
            stream=record.stream,
            client=record.client,
            tenant=record.tenant,
            error=self._error(record),
            traceparent=self._redactor.known(record.traceparent.decode("latin-1")),
        )
        return self._encoder.encode(line) + b"\n"

    def _console(self, record: RequestRecord) -> bytes:
        time = self._clock.iso(record.start_unix_ns + int(record.duration * 1e9))
        ttft = "" if record.ttft is None else f" ttft={record.ttft * 1e3:.1f}ms"
        optional = "".join(
            f" {name}={value}"
            for name, value in (
                ("retries", record.retries),
                ("cache", record.cache),
                ("tenant", record.tenant),
                ("error", self._error(record)),
            )
            if value
        )
        text = (
            f"{time} INFO    {REQUESTS_LOGGER}  {record.method} {record.route} {record.status}"
            f" {record.outcome} {record.duration * 1e3:.1f}ms{ttft} model={self._model(record)}"
            f" member={record.member} version={record.version}"
            f" tokens={record.prompt_tokens}+{record.completion_tokens}{optional}"
            f" client={record.client} id={self._redactor.known(record.request_id.decode('latin-1'))}"
        )
        return _one_line(text).encode("utf-8", "backslashreplace") + b"\n"

    def _model(self, record: RequestRecord) -> str:
        return self._redactor.known(record.model[:MAX_NAME])

    def _error(self, record: RequestRecord) -> str:
        return self._redactor(record.error[:MAX_ERROR]) if record.error else ""
