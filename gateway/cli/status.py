"""`changeover status`: what the gateway says about itself, once or live."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import httpx2
import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gateway.cli.options import fail
from gateway.cli.status_view import plain_text, view
from gateway.observe.status import GatewayStatus, decode_status

_TIMEOUT_S = 5.0


class StatusError(Exception):
    """The status could not be had; the message says why and what to do."""


def status(
    url: Annotated[
        str, typer.Option("--url", "-u", metavar="URL", help="The gateway.")
    ] = "http://localhost:8000",
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--once", help="Keep showing it, or once. Default: watch on a terminal."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, once.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 1.0,
) -> None:
    """Show members, versions, load, QPS and latency.

    Example: changeover status --url http://localhost:8000 --once
    """
    console = Console()
    live = console.is_terminal if watch is None else watch
    with httpx2.Client(base_url=_base(url), timeout=_TIMEOUT_S, trust_env=False) as client:
        try:
            first = fetch(client, url)
        except StatusError as error:
            fail(str(error))
        if as_json:
            print(msgspec.json.format(msgspec.json.encode(first), indent=2).decode())
        elif not live:
            _print_once(console, first)
        elif console.is_terminal:
            _watch(console, client, url, first, interval_s)
        else:
            _follow(client, url, first, interval_s)


def _base(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def fetch(client: httpx2.Client, url: str) -> GatewayStatus:
    """Ask the gateway. Raises StatusError."""
    try:
        response = client.get("/status")
    except httpx2.TimeoutException:
        raise StatusError(f"The gateway at {url} did not answer within {_TIMEOUT_S:g} s.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise StatusError(
            f"The gateway at {url} cannot be reached: {error}. Is it running? "
            "Start one with `changeover serve`, or name another with --url."
        ) from None
    if response.status_code != 200:
        raise StatusError(f"{url}/status answered {response.status_code}. Is it a Changeover gateway?")
    try:
        return decode_status(response.content)
    except msgspec.DecodeError as error:
        raise StatusError(f"{url}/status answered something else than a status: {error}") from None


def _print_once(console: Console, current: GatewayStatus) -> None:
    if console.is_terminal:
        console.print(view(current, console.width))
    else:
        print(plain_text(current))


def _follow(client: httpx2.Client, url: str, current: GatewayStatus, interval_s: float) -> None:
    """Into a file or a pipe: one block after the other."""
    try:
        print(plain_text(current), flush=True)
        while True:
            time.sleep(interval_s)
            try:
                print(plain_text(fetch(client, url)), flush=True)
            except StatusError as error:
                print(error, file=sys.stderr, flush=True)
    except (KeyboardInterrupt, BrokenPipeError):
        return


def _watch(
    console: Console, client: httpx2.Client, url: str, current: GatewayStatus, interval_s: float
) -> None:
    """On a terminal, until Ctrl-C. A gateway that goes away is said so, and waited for."""
    try:
        with Live(view(current, console.width), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval_s)
                try:
                    current = fetch(client, url)
                    live.update(view(current, console.width), refresh=True)
                except StatusError as error:
                    live.update(Text(f"{error} Looking again …", style="bold red"), refresh=True)
    except KeyboardInterrupt:
        return
