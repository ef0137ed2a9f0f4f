from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.observe.labels import Route
from gateway.observe.lines import Clock
from gateway.observe.logs import Logs
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord
from gateway.observe.sink import Sink
from gateway.settings.tree import Logging

SECRET = "very-secret-value"
NOON = 1_796_040_000_123_456_789

Run = Callable[[Logging], "Output"]


class Output:
    """Logs into a file; `read` ends them."""

    def __init__(self, path: Path, settings: Logging) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._sink = Sink(self._fd)
        self._path = path
        self.logs = Logs(settings, self._sink, secrets=[SECRET])

    def read(self) -> str:
        self.logs.close()
        self._sink.close()
        return self._path.read_text()

    def lines(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(line) for line in self.read().splitlines()]

    def close(self) -> None:
        self.logs.close()
        self._sink.close()
        os.close(self._fd)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    outputs: list[Output] = []

    def start(settings: Logging) -> Output:
        outputs.append(Output(tmp_path / f"log-{len(outputs)}", settings))
        return outputs[-1]

    yield start
    for output in outputs:
        output.close()


def record() -> RequestRecord:
    return RequestRecord(
        b"req-1",
        "POST",
        Route.CHAT,
        NOON,
        model="small",
        member="10.0.0.1:8000",
        version="v7",
        status=200,
        outcome=Outcome.OK,
        duration=1.5,
        ttft=0.25,
        queue=0.0,
        prompt_tokens=7,
        completion_tokens=20,
        retries=1,
        cache="miss",
        client="192.0.2.7:5000",
    )


def test_a_json_line_has_time_level_logger_message_and_fields(run: Run) -> None:
    output = run(Logging(format="json"))  # type: ignore[arg-type]
    logging.getLogger("gateway.fleet").warning(
        "Member %s left", "a", extra={"member": "a", "request_id": "r1", "count": 3}
    )
    [line] = output.lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("time")))
    assert line == {
        "level": "warning",
        "logger": "gateway.fleet",
        "message": "Member a left",
        "member": "a",
        "request_id": "r1",
        "count": 3,
    }


def test_a_console_line_reads_like_one(run: Run) -> None:
    output = run(Logging())
    logging.getLogger("gateway.fleet").info("Member left", extra={"member": "a"})
    assert re.fullmatch(r"\S+Z INFO    gateway\.fleet  Member left  member=a\n", output.read())


def test_a_request_is_one_line_of_json(run: Run) -> None:
    output = run(Logging(format="json"))  # type: ignore[arg-type]
    output.logs.request(record())
    assert output.lines() == [
        {
            "time": "2026-11-30T12:00:01.623Z",
            "level": "info",
            "logger": "gateway.requests",
            "message": "request",
            "request_id": "req-1",
            "method": "POST",
            "route": "chat",
            "status": 200,
            "outcome": "ok",
            "duration_ms": 1500.0,
            "model": "small",
            "member": "10.0.0.1:8000",
            "version": "v7",
            "ttft_ms": 250.0,
            "queue_ms": 0.0,
            "prompt_tokens": 7,
            "completion_tokens": 20,
            "retries": 1,
            "cache": "miss",
            "client": "192.0.2.7:5000",
        }
    ]


def test_a_request_is_one_line_of_text(run: Run) -> None:
    output = run(Logging())
    output.logs.request(record())
    assert output.read() == (
        "2026-11-30T12:00:01.623Z INFO    gateway.requests  POST chat 200 ok 1500.0ms ttft=250.0ms"
        " model=small member=10.0.0.1:8000 version=v7 tokens=7+20 retries=1 cache=miss"
        " client=192.0.2.7:5000 id=req-1\n"
    )


@pytest.mark.parametrize("settings", [Logging(requests=False), Logging(level="warning")])
def test_request_lines_can_be_turned_off(run: Run, settings: Logging) -> None:
    output = run(settings)
    output.logs.request(record())
    assert output.read() == ""


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_client_cannot_forge_a_line(run: Run, form: str) -> None:
    output = run(Logging.model_validate({"format": form}))
    forged = record()
    forged.model = "x\n2026-11-30T12:00:00.000Z ERROR gateway  all is lost"
    output.logs.request(forged)
    logging.getLogger("gateway").info("no model named %s", forged.model, extra={"model": forged.model})
    text = output.read()
    assert text.count("\n") == 2


@pytest.mark.fault("X2")
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.parametrize("form", ["console", "json"])
def test_a_secret_is_in_no_line_at_any_level(run: Run, form: str, level: str) -> None:
    output = run(Logging.model_validate({"format": form, "level": level}))
    for name in ("gateway.http", "backends.vllm", "httpx2", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        for severity in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logger.log(severity, "headers: %s", {"authorization": "Bearer of-a-client"})
            logger.log(severity, "the key is %s", SECRET, extra={"key": SECRET, "quoted": f'"{SECRET}"'})
        try:
            raise ValueError(f"refused {SECRET}")
        except ValueError:
            logger.exception("Bearer of-a-client failed")
    telling = record()
    telling.model = telling.error = SECRET
    telling.request_id = SECRET.encode()
    output.logs.request(telling)
    text = output.read()
    assert text
    assert SECRET not in text
    assert "of-a-client" not in text


@pytest.mark.fault("X2")
def test_a_record_that_cannot_be_formatted_shows_nothing_of_it(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(Logging())
    logging.getLogger("gateway").info("%d", SECRET)
    assert output.read() == "(a log record of gateway could not be formatted: TypeError)\n"
    assert SECRET not in capsys.readouterr().err


def test_libraries_are_not_heard_below_info(run: Run) -> None:
    output = run(Logging(level="debug"))
    logging.getLogger("httpx2").debug("send_request_headers")
    logging.getLogger("gateway").debug("ours")
    assert "ours" in (text := output.read())
    assert "send_request_headers" not in text


def test_uvicorn_and_warnings_write_into_the_same_log(run: Run) -> None:
    output = run(Logging())
    logging.getLogger("uvicorn.error").info("Started server")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    text = output.read()
    assert "uvicorn.error  Started server" in text
    assert "old thing" in text


def test_a_traceback_follows_its_line(run: Run) -> None:
    output = run(Logging(format="json"))  # type: ignore[arg-type]
    try:
        raise OSError("no luck")
    except OSError:
        logging.getLogger("gateway").exception("Failed")
    [line] = output.lines()
    assert "OSError: no luck" in str(line["exception"])


def test_logging_is_put_back_as_it_was(run: Run) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    output = run(Logging())
    assert (root.handlers[:], root.level) != before
    output.read()
    assert (root.handlers[:], root.level) == before


def test_times_are_utc_with_milliseconds() -> None:
    clock = Clock()
    assert clock.iso(0) == "1970-01-01T00:00:00.000Z"
    assert clock.iso(999_999_999) == "1970-01-01T00:00:00.999Z"
    assert clock.iso(NOON) == "2026-11-30T12:00:00.123Z"
