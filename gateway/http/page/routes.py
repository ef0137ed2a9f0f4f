"""`/admin`: the operator's page, and `/admin/figures`, which it asks for every two seconds.

The page itself holds nothing worth hiding; whatever it shows or does goes through the guarded admin routes,
with the token in a header. No cookie is set, so no other site can act for an operator; the policy below
keeps out foreign scripts and frames. Without an admin token none of it exists.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Protocol

import msgspec
from fastapi import Depends, FastAPI, Response

from gateway.errors import NotFound
from gateway.http.admin import guard
from gateway.observe.figures import Figures
from gateway.observe.status import GatewayStatus

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Inline styles: the plotting library sets sizes and colours of its own elements."""


class Shown(Protocol):
    """What the page asks of the gateway."""

    async def status(self) -> GatewayStatus: ...
    async def figures(self) -> Figures: ...


class Page(msgspec.Struct):
    """One look: what is now, and counters whose differences are what happens."""

    status: GatewayStatus
    at: float
    minute: dict[str, float | None]
    totals: dict[str, dict[str, float]]
    versions: dict[str, dict[str, dict[str, float]]]


def declare(app: FastAPI, token: str | None, gateway: Shown) -> None:
    """Add the routes. `token` None: they answer 404."""
    static = {
        entry.name: entry.read_bytes()
        for entry in files("gateway.http.page").joinpath("static").iterdir()
        if entry.is_file()
    }

    def file(name: str) -> Response:
        if token is None or name not in static:
            raise NotFound("Nothing is at this path.")
        return Response(static[name], headers={**HEADERS, "content-type": KINDS[name[name.rindex(".") :]]})

    @app.get("/admin", include_in_schema=False)
    async def page() -> Response:
        return file("page.html")

    @app.get("/admin/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        return file(name)

    @app.get("/admin/figures", tags=["operation"], dependencies=[Depends(guard(token))])
    async def figures() -> Response:
        """Members, load and latency as `/status` has them, and what was counted until now."""
        found = await gateway.figures()
        look = Page(await gateway.status(), found.at, found.minute, found.totals, found.versions)
        return Response(msgspec.json.encode(look), media_type="application/json")
