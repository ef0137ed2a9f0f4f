"""nginx's configuration, judged by nginx (`-t`) and gixy, as every place renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from deploy.checks import beside
from tests.drivers.nginx import command, render

ACCEPTED = {"proxy_buffering_off"}
"""gixy's warnings that are meant: a stream must not be buffered."""


def check() -> tuple[int, list[str]]:
    """One configuration, and what is wrong with it. Raises ProgramMissing."""
    return 1, list(complaints())


def complaints(tls: Path | None = None) -> Iterator[str]:
    """`tls`: a folder with a certificate, to take the server with TLS along."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        render(folder, {"NGINX_LOCAL_RESOLVERS": "127.0.0.11"}, tls=tls)
        done = subprocess.run([*command(folder), "-t"], capture_output=True, text=True, check=False)
        if done.returncode != 0 or "[warn]" in done.stderr:
            yield f"nginx -t:\n{done.stderr}"
        judged = beside.run("gixy-next", ["-f", "json", str(folder / "nginx.conf")])
        for issue in msgspec.json.decode(judged.stdout, type=list[dict[str, object]]):
            if issue["plugin"] not in ACCEPTED:
                yield f"gixy: {issue['plugin']}: {issue['summary']}: {issue.get('reason', '')}"
