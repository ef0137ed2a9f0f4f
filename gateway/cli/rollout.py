"""`changeover rollout …`: begin, watch and steer how a version comes to serve.

Asks a gateway's admin routes; any gateway of the fleet will do. Every command has `--json` for programs, and
ends with 1 and a sentence where the gateway refuses.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from typing import Annotated, Any

import httpx2
import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from checkpoints.rollouts import Rollout, Stage
from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit
from gateway.cli.rollout_view import line, plain_text, view
from gateway.rollout.shown import ShownRollouts
from gateway.settings.rollout import RolloutMode

_TIMEOUT_S = 30.0

app = typer.Typer(
    help="Begin, watch and steer how a version comes to serve.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

UrlOption = Annotated[str, typer.Option("--url", "-u", metavar="URL", help="A gateway.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", help="Its admin token. Default: `admin.token` of the configuration."
    ),
]
ModelOption = Annotated[str | None, typer.Option("--model", help="Where it serves several.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RolloutArgument = Annotated[str, typer.Argument(metavar="[ROLLOUT]", help="Default: the present one.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Watch until it has ended; 1 unless the version then serves.")
]
DEFAULT_URL = "http://localhost:8000"


class Refused(Exception):
    """The gateway does not do it; the message says why."""


class Asked:
    """One gateway's admin routes."""

    def __init__(self, url: str, token: str, model: str | None) -> None:
        self.url = url
        self._client = httpx2.Client(
            base_url=url if "://" in url else f"http://{url}",
            headers={"authorization": f"Bearer {token}", "x-changeover-by": _somebody()},
            params={"model": model} if model else None,
            timeout=_TIMEOUT_S,
            trust_env=False,
        )

    def get(self) -> ShownRollouts:
        """Raises Refused."""
        return msgspec.json.decode(self._call("GET", "/admin/rollouts"), type=ShownRollouts)

    def post(self, path: str, body: dict[str, object] | None = None) -> Rollout:
        """Raises Refused."""
        return msgspec.json.decode(self._call("POST", f"/admin/rollouts{path}", body), type=Rollout)

    def _call(self, method: str, path: str, body: dict[str, object] | None = None) -> bytes:
        content = msgspec.json.encode(body) if body is not None else None
        try:
            response = self._client.request(method, path, content=content)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Refused(f"The gateway at {self.url} cannot be reached: {error}.") from None
        if response.status_code < 300:
            return response.content
        raise Refused(_reason(response, self.url))


@app.command()
def start(
    version: Annotated[
        str, typer.Argument(help="A number, an alias, latest, or 0 for the base model.")
    ] = "latest",
    mode: Annotated[RolloutMode | None, typer.Option(help="Default: as configured.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Out of quarantine, in place of what rolls out now.")
    ] = False,
    wait: WaitOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Roll a version out.

    Example: changeover rollout start 7 --mode canary --wait
    """
    asked = _asked(url, token, model, config, assignments)
    body: dict[str, object] = {"version": version, "force": force}
    if mode is not None:
        body["mode"] = mode.value
    begun = _done(lambda: asked.post("", body))
    _end(asked, begun, wait=wait, as_json=as_json)


@app.command()
def status(
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--once", help="Keep showing it, or once. Default: watch on a terminal."),
    ] = None,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 1.0,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what serves, what rolls out, the next step, each member, and the evidence.

    Example: changeover rollout status --once
    """
    asked = _asked(url, token, model, config, assignments)
    console = Console()
    shown = _done(asked.get)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(shown), indent=1).decode())
    elif console.is_terminal if watch is None else watch:
        _watch(asked, shown, console, interval_s, until_end=False)
    elif console.is_terminal:
        console.print(view(shown, console.width))
    else:
        print(plain_text(shown))


@app.command()
def promote(
    rollout: RolloutArgument = "current",
    wait: WaitOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on to all members without waiting for evidence."""
    asked = _asked(url, token, model, config, assignments)
    _end(asked, _done(lambda: asked.post(f"/{rollout}/promote")), wait=wait, as_json=as_json)


@app.command()
def rollback(
    rollout: RolloutArgument = "current",
    to: Annotated[str | None, typer.Option(help="A version that is kept. Default: the one before.")] = None,
    reason: Annotated[str, typer.Option(help="For the journal.")] = "",
    wait: WaitOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a version back everywhere, or go back to one that is kept; it is not tried again by itself.

    Example: changeover rollout rollback --to 5 --reason "answers too long"
    """
    asked = _asked(url, token, model, config, assignments)
    body: dict[str, object] = {"reason": reason, **({"to": to} if to is not None else {})}
    _end(asked, _done(lambda: asked.post(f"/{rollout}/rollback", body)), wait=wait, as_json=as_json)


@app.command()
def pause(
    rollout: RolloutArgument = "current",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send no further member on its way; shares stay as they are."""
    asked = _asked(url, token, model, config, assignments)
    _end(asked, _done(lambda: asked.post(f"/{rollout}/pause")), wait=False, as_json=as_json)


@app.command()
def resume(
    rollout: RolloutArgument = "current",
    wait: WaitOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on after a pause."""
    asked = _asked(url, token, model, config, assignments)
    _end(asked, _done(lambda: asked.post(f"/{rollout}/resume")), wait=wait, as_json=as_json)


def _asked(
    url: str, token: str | None, model: str | None, config: ConfigOption, assignments: SetOption
) -> Asked:
    if token is None:
        configured = load_or_exit(config, assignments).settings.admin.token
        if configured is None:
            fail("The gateway needs its admin token: give --token, or a configuration with `admin.token`.")
        token = configured.get_secret_value()
    return Asked(url, token, model)


def _done(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Refused as error:
        fail(str(error))


def _end(asked: Asked, record: Rollout, *, wait: bool, as_json: bool) -> None:
    """Say what was changed; with `wait`, watch it to its end and end accordingly."""
    if wait:
        shown = _watch(asked, _done(asked.get), Console(stderr=as_json), 0.5, until_end=True)
        record = shown.rollout or record
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(record), indent=1).decode())
    else:
        print(line(record))
    if wait and record.stage is not Stage.PROMOTED:
        raise typer.Exit(1)


def _watch(
    asked: Asked, shown: ShownRollouts, console: Console, interval_s: float, *, until_end: bool
) -> ShownRollouts:
    """Until Ctrl-C, or until the rollout has ended. A gateway that goes away is waited for."""
    told = ""
    try:
        with Live(console=console, auto_refresh=False, transient=until_end) as live:
            while True:
                if console.is_terminal:
                    live.update(view(shown, console.width), refresh=True)
                elif (said := f"{shown.rollout.stage.value if shown.rollout else '-'}: {shown.next}") != told:
                    console.print(said, highlight=False)
                    told = said
                if until_end and (shown.rollout is None or not shown.rollout.active):
                    return shown
                time.sleep(interval_s)
                try:
                    shown = asked.get()
                except Refused as error:
                    live.update(Text(f"{error} Looking again …", style="bold red"), refresh=True)
    except KeyboardInterrupt:
        return shown


def _reason(response: httpx2.Response, url: str) -> str:
    if response.status_code == 401:
        return f"The gateway at {url} does not know this token."
    try:
        error = msgspec.json.decode(response.content)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"The gateway at {url} answered {response.status_code}. Is it a Changeover gateway?"
    if error == "Nothing is at this path.":
        return f"The gateway at {url} has no admin routes: set `admin.token`."
    return str(error)


def _somebody() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
