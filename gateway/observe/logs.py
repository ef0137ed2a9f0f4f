"""Logging: stdlib loggers and one line for each request, as text for people or JSON for machines.

`Logs` takes over the root logger, uvicorn's loggers and Python's warnings, and puts them back on `close`.
Everything passes the redactor; lines never hold prompts, answers or headers. Libraries are heard from INFO
on, whatever the level: below it they print headers. Extra fields: `logger.info("…", extra={"member": name})`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from gateway.observe.lines import ConsoleFormatter, JsonFormatter, RequestLines
from gateway.observe.record import RequestRecord
from gateway.observe.redact import Redactor
from gateway.observe.sink import Sink
from gateway.settings.tree import LogFormat, Logging

OWN_LOGGERS = ("gateway", "backends", "checkpoints", "changeover")
FOREIGN_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
"""They come with handlers of their own; here they write into ours."""
TALKATIVE_LOGGERS = ("httpx2",)
"""They write a line for each request that this process makes of agents."""


class _SinkHandler(logging.Handler):
    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._sink.put(self.format(record).encode("utf-8", "backslashreplace") + b"\n")
        except Exception as error:
            # Whoever logs must not fail; and logging's own report would show what was to be redacted.
            report = f"(a log record of {record.name} could not be formatted: {type(error).__name__})\n"
            self._sink.put(report.encode())


class Logs:
    """The process's logging, from construction to `close`."""

    def __init__(self, settings: Logging, sink: Sink, *, secrets: Iterable[str] = ()) -> None:
        """`secrets`: values that must never be seen, such as the keys and tokens of the settings."""
        self._sink = sink
        self._redactor = redactor = Redactor(secrets)
        json = settings.format is LogFormat.JSON
        self._lines = RequestLines(redactor, json=json)
        self._write_requests = False
        handler = _SinkHandler(sink)
        handler.setFormatter(JsonFormatter(redactor) if json else ConsoleFormatter(redactor))
        root = logging.getLogger()
        self._before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in _touched()]
        root.handlers[:] = [handler]
        for name in FOREIGN_LOGGERS:
            foreign = logging.getLogger(name)
            foreign.handlers.clear()
            foreign.propagate = True
            foreign.setLevel(logging.NOTSET)
        for name in TALKATIVE_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.captureWarnings(True)
        self.follow(settings)

    def follow(self, settings: Logging, *, secrets: Iterable[str] = ()) -> None:
        """Changed settings: the level and what is written; the format stays. `secrets`: new ones."""
        self._redactor.learn(secrets)
        level = logging.getLevelNamesMapping()[settings.level.upper()]
        self._write_requests = settings.requests and level <= logging.INFO
        logging.getLogger().setLevel(max(level, logging.INFO))
        for name in OWN_LOGGERS:
            logging.getLogger(name).setLevel(level)

    def request(self, record: RequestRecord) -> None:
        """Write the line of a request that has ended, if such lines are wanted."""
        if self._write_requests:
            self._sink.put(self._lines.line(record))

    def close(self) -> None:
        """Put logging back as it was. The sink stays open: it is its owner's."""
        logging.captureWarnings(False)
        for logger, handlers, level, propagate in self._before:
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _touched() -> list[logging.Logger]:
    return [
        logging.getLogger(),
        *map(logging.getLogger, (*OWN_LOGGERS, *FOREIGN_LOGGERS, *TALKATIVE_LOGGERS)),
    ]
