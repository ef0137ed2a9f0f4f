"""`changeover status` against a real HTTP server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from rich.console import Console

from gateway.cli.status_view import count, duration, plain_text, seconds, view
from gateway.observe.status import GatewayStatus, MemberStatus, ModelStatus, decode_status
from tests.gateway.cli.conftest import Run

STATUS = GatewayStatus(
    version="0.1.0",
    uptime_s=3725,
    workers=2,
    qps=12.34,
    latency_s={"0.5": 0.0123, "0.9": 0.5, "0.99": 1.25},
    in_flight=3,
    queued=1,
    models=[
        ModelStatus(
            name="tiny",
            ready=True,
            policy="least_load",
            versions=["v1", "v2"],
            members=[
                MemberStatus(
                    name="tiny-0", address="unix:/run/0.sock", state="ready", version="v1", requests=12_345
                ),
                MemberStatus(
                    name="tiny-1", address="http://b:1", state="ejected", reason="refused 5 times", since_s=65
                ),
            ],
        ),
        ModelStatus(name="empty", ready=False, policy="prefix"),
    ],
)


class Answer(BaseHTTPRequestHandler):
    """Answers /status with what its server holds."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Gateway)
        self.send_response(self.server.code if self.path == "/status" else 404)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class names it so
        pass


class Gateway(ThreadingHTTPServer):
    code = 200
    body = msgspec.json.encode(STATUS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, name="gateway", kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def rendered(width: int) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(view(STATUS, width))
    return capture.get()


def test_a_pipe_gets_plain_lines(run: Run, gateway: Gateway) -> None:
    ran = run("status", "--url", gateway.url, "--once")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == plain_text(STATUS) + "\n"
    assert "\x1b" not in ran.out


def test_plain_lines_say_everything() -> None:
    assert plain_text(STATUS).splitlines() == [
        "changeover 0.1.0  up 1h 2m  workers 2  12.3 requests/s  in flight 3  queued 1  "
        "p50 12.3 ms  p90 500 ms  p99 1.25 s",
        "tiny: ready  least_load  versions v1, v2",
        "  tiny-0  address unix:/run/0.sock  state ready  for 0s  version v1  in flight 0  tokens 0  "
        "requests 12.3k  failures 0  latency -",
        "  tiny-1  address http://b:1  state ejected  for 1m 5s  version -  in flight 0  tokens 0  "
        "requests 0  failures 0  latency -  reason refused 5 times",
        "empty: not ready  prefix  versions -",
    ]


def test_json_is_the_answer(run: Run, gateway: Gateway) -> None:
    ran = run("status", "--url", gateway.url.removeprefix("http://"), "--json")
    assert decode_status(ran.out.encode()) == STATUS


def test_a_gateway_that_cannot_be_reached_is_said_so(run: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        ran = run("status", "--url", url)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"The gateway at {url} cannot be reached: ")
    assert "changeover serve" in ran.err


@pytest.mark.parametrize("url", ["http://[", "ftp://host", "http://host:99999"])
def test_an_address_that_is_none_is_said_so(run: Run, url: str) -> None:
    ran = run("status", "--url", url, "--once")
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    "code, body, message",
    [
        (404, b"", "/status answered 404. Is it a Changeover gateway?"),
        (200, b"<html>", "/status answered something else than a status: "),
        (200, b'{"version": 1}', "/status answered something else than a status: "),
    ],
)
def test_another_server_is_recognised(
    run: Run, gateway: Gateway, code: int, body: bytes, message: str
) -> None:
    gateway.code, gateway.body = code, body
    ran = run("status", "--url", gateway.url)
    assert ran.code == 1
    assert message in ran.err


@pytest.mark.parametrize("width", [40, 80, 160])
def test_every_terminal_shows_members_states_and_load_without_wrapping(width: int) -> None:
    screen = rendered(width)
    for word in ("tiny-0", "ready", "tiny-1", "ejected", "12.3 requests/s", "no members"):
        assert word in screen
    rows = [line for line in screen.splitlines() if line.startswith("tiny-")]
    assert len(rows) == 2
    assert all(len(line.rstrip()) <= width for line in rows)


def test_only_a_wide_terminal_shows_addresses_and_reasons() -> None:
    assert "refused 5 times" in rendered(160)
    assert "refused 5 times" not in rendered(80)


def test_an_answer_with_fields_of_a_newer_gateway_is_read() -> None:
    newer = msgspec.json.decode(msgspec.json.encode(STATUS)) | {"something": [1]}
    assert decode_status(msgspec.json.encode(newer)) == STATUS


def test_a_gateway_that_has_answered_nothing_yet_is_shown() -> None:
    quiet = msgspec.structs.replace(STATUS, qps=0.0, latency_s={"0.5": float("nan"), "0.99": float("nan")})
    assert "p50 -  p99 -" in plain_text(decode_status(msgspec.json.encode(quiet)))


def test_numbers_are_written_for_people() -> None:
    assert [seconds(value) for value in (None, 0.0123, 1.5, 61.0)] == ["-", "12.3 ms", "1.5 s", "61 s"]
    assert [duration(value) for value in (0, 59.9, 60, 90_061)] == ["0s", "59s", "1m", "1d 1h"]
    assert [count(value) for value in (9_999, 12_345, 4_500_000)] == ["9999", "12.3k", "4.5M"]
