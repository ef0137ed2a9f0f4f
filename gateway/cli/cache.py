"""`changeover cache stats | clear`: the kept answers, of a gateway that runs or in Redis directly.

With `--url` the gateway is asked (its admin token is needed), which knows the memory of its workers too.
Without, the Redis of the configuration is: whatever runs or does not, but memory is then not touched.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx2
import msgspec
import typer
from redis.exceptions import RedisError

from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit
from gateway.flow.cache.build import redis_url
from gateway.flow.cache.redis_client import Remote
from gateway.settings.masking import without_passwords
from gateway.settings.tree import CacheType

_TIMEOUT_S = 30.0

app = typer.Typer(
    help="See and clear the kept answers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

UrlOption = Annotated[
    str | None, typer.Option("--url", "-u", metavar="URL", help="A gateway that runs. Default: only Redis.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", help="Its admin token. Default: `admin.token` of the configuration."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def stats(
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how many answers are kept.

    Example: changeover cache stats --url http://localhost:8000
    """
    if url is not None:
        _show(_ask("GET", "/admin/cache", url, token, config, assignments), as_json, "kept")
    else:
        _show({"redis_entries": _in_redis(config, assignments, clear=False)}, as_json, "kept")


@app.command()
def clear(
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget all kept answers; nothing else that Redis holds is touched.

    Example: changeover cache clear --url http://localhost:8000
    """
    if url is not None:
        _show(_ask("POST", "/admin/cache/clear", url, token, config, assignments), as_json, "forgotten")
    else:
        _show({"redis_entries": _in_redis(config, assignments, clear=True)}, as_json, "forgotten")


def _ask(
    method: str, path: str, url: str, token: str | None, config: ConfigOption, assignments: SetOption
) -> dict[str, Any]:
    if token is None:
        configured = load_or_exit(config, assignments).settings.admin.token
        if configured is None:
            fail("The gateway needs its admin token: give --token, or a configuration with `admin.token`.")
        token = configured.get_secret_value()
    base = url if "://" in url else f"http://{url}"
    try:
        with httpx2.Client(base_url=base, timeout=_TIMEOUT_S, trust_env=False) as client:
            response = client.request(method, path, headers={"authorization": f"Bearer {token}"})
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        fail(f"The gateway at {url} cannot be reached: {error}.")
    if response.status_code == 404:
        fail(f"The gateway at {url} has no admin routes (`admin.token`), or no cache (`cache.type`).")
    if response.status_code == 401:
        fail(f"The gateway at {url} does not know this token.")
    if response.status_code != 200:
        fail(f"The gateway at {url} answered {response.status_code}.")
    found: dict[str, Any] = msgspec.json.decode(response.content)
    return found


def _in_redis(config: ConfigOption, assignments: SetOption, *, clear: bool) -> int:
    settings = load_or_exit(config, assignments).settings.cache
    if settings.type in (CacheType.OFF, CacheType.MEMORY):
        fail(
            f"`cache.type` is {settings.type.value}: answers are not kept in Redis. Ask a gateway with --url."
        )
    url = redis_url(settings)

    async def work() -> int:
        remote = Remote.at(url)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await (remote.clear() if clear else remote.count())
        finally:
            await remote.close()

    try:
        return asyncio.run(work())
    except (RedisError, OSError, TimeoutError, ValueError) as error:
        fail(f"Redis at {without_passwords(url)} does not do it: {type(error).__name__}: {error}")


def _show(found: dict[str, Any], as_json: bool, what: str) -> None:
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    if "memory_entries" in found:
        print(f"memory  {found['memory_entries']} answers, {found['memory_bytes']} bytes {what}")
    if found.get("redis_in_use") is False:
        print("redis   is configured and does not answer")
    elif found.get("redis_entries") is not None:
        print(f"redis   {found['redis_entries']} answers {what}")
